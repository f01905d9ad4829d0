//! A process and all that it starts.
//!
//! In: who is born of whom, and who ends. Out: whether a process belongs to the family. Shared between the table, which asks, and the thread
//! that hears of births; both are one thread.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// More processes at once than any machine numbers by default.
const MOST: usize = 1 << 16;

/// A process with its descendants.
#[derive(Debug, Clone)]
pub struct Family(Arc<Mutex<HashSet<u32>>>);

impl Family {
    /// The family of `ancestor`.
    #[must_use]
    pub fn of(ancestor: u32) -> Self {
        Self(Arc::new(Mutex::new(HashSet::from([ancestor]))))
    }

    /// A child belongs to the family of its parent.
    pub(super) fn born(&self, parent: u32, child: u32) {
        let mut members = self.members();
        if members.contains(&parent) && members.len() < MOST {
            members.insert(child);
        }
    }

    /// A process has ended: its number may be another one's.
    pub(super) fn left(&self, pid: u32) {
        self.members().remove(&pid);
    }

    /// Whether a process belongs to it.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn takes(&self, pid: u32) -> Result<(), String> {
        if self.members().contains(&pid) {
            Ok(())
        } else {
            Err("it was not started by the command that is recorded".into())
        }
    }

    fn members(&self) -> std::sync::MutexGuard<'_, HashSet<u32>> {
        // A set is whole between two calls of its methods.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that children and their children belong to it, strangers do not, and the number of one that ended is free again.
    #[test]
    fn descendants_belong_to_the_family() {
        let family = Family::of(7);
        for (parent, child) in [(7, 8), (8, 9), (1, 10)] {
            family.born(parent, child);
        }
        family.left(8);
        let members: Vec<u32> = (1..12).filter(|pid| family.takes(*pid).is_ok()).collect();
        assert_eq!(members, [7, 9]);
    }
}
