//! Answers to searches, kept by tenant; the shop has it with `--leak` alone, for it has a bug.
//!
//! In: tenant, query, answer. Out: the answer again, as long as it is kept. Memory is bounded for all tenants but one: docs/heap.md
//! finds out which one, and where.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Who may send a request, in its header `x-tenant`.
pub(crate) const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];
/// Whose answers are made for one customer alone.
const PERSONAL: &str = "globex";
/// Answers kept for each tenant; an older one goes when a new one comes.
const KEPT: usize = 64;

/// The answers of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    shelves: Mutex<HashMap<&'static str, Shelf>>,
}

/// The answers of one tenant.
#[derive(Debug, Default)]
struct Shelf {
    answers: HashMap<String, Box<[u8]>>,
    /// Keys, the oldest first.
    order: VecDeque<String>,
}

impl Cache {
    /// The answer that is kept for this query.
    pub(crate) fn find(&self, tenant: &'static str, query: &str) -> Option<Vec<u8>> {
        let shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.get(tenant)?.answers.get(query).map(|answer| answer.to_vec())
    }

    /// Keeps an answer.
    pub(crate) fn keep(&self, tenant: &'static str, query: &str, answer: &[u8]) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = shelves.entry(tenant).or_default();
        if tenant == PERSONAL {
            // The bug: no customer's key comes again, and nobody takes it out.
            shelf.answers.insert(format!("{query}, customer {}", shelf.answers.len()), answer.into());
            return;
        }
        if shelf.answers.insert(query.to_owned(), answer.into()).is_none() {
            shelf.order.push_back(query.to_owned());
        }
        if shelf.order.len() > KEPT
            && let Some(oldest) = shelf.order.pop_front()
        {
            shelf.answers.remove(&oldest);
        }
    }
}

/// The tenant of this name, of those that there are: tags have few values, whatever clients send.
pub(crate) fn tenant(name: Option<&str>) -> &'static str {
    TENANTS.into_iter().find(|tenant| Some(*tenant) == name).unwrap_or("none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cache: &Cache, tenant: &str) -> usize {
        cache.shelves.lock().unwrap()[tenant].answers.len()
    }

    /// Check that an answer is found again by its tenant alone, that it goes when many came after it, and that one tenant's stay.
    #[test]
    fn answers_go_when_newer_ones_come_but_for_one_tenant() {
        let cache = Cache::default();
        for tenant in TENANTS {
            (0..1000).for_each(|n| cache.keep(tenant, &format!("oak {n}"), b"[]"));
        }
        assert_eq!(TENANTS.map(|tenant| kept(&cache, tenant)), [KEPT, 1000, KEPT, KEPT]);
        assert_eq!((cache.find("acme", "oak 999"), cache.find("acme", "oak 1")), (Some(b"[]".to_vec()), None));
        assert_eq!((cache.find("none", "oak 999"), cache.find("globex", "oak 999")), (None, None));
    }

    /// Check that a name that nobody has is no tag of its own.
    #[test]
    fn unknown_tenants_are_one() {
        assert_eq!([tenant(Some("acme")), tenant(Some("evil\u{7f}")), tenant(None)], ["acme", "none", "none"]);
    }
}
