//! Which modules the addresses of sites are in, for as long as anything lives that was allocated there.
//!
//! In: each state of the loaded modules that hooks work with. Out: the number of its era, which sites keep, and what an
//! era's addresses are in. The newest eras are remembered; of those before, what they all have in common. Never asked by a hook.

use std::sync::Arc;

use crate::unwind::modules::Modules;

/// Most eras that are told apart.
const MAX_ERAS: usize = 8;

/// The eras of the process.
#[derive(Debug, Clone, Default)]
pub(super) struct Eras {
    /// By number, the newest last.
    newest: Vec<(u64, Arc<Modules>)>,
    /// What all those before have in common.
    before: Option<Arc<Modules>>,
}

impl Eras {
    /// The era of what is allocated from now on, with these modules loaded.
    pub(super) fn enter(&mut self, modules: &Arc<Modules>) -> u64 {
        let next = match self.newest.last_mut() {
            Some((number, last)) => match Modules::joined(last, modules) {
                Some(joined) => {
                    *last = joined;
                    return *number;
                }
                None => *number + 1,
            },
            None => 0,
        };
        self.newest.push((next, Arc::clone(modules)));
        if self.newest.len() > MAX_ERAS {
            let (_, gone) = self.newest.remove(0);
            self.before = Some(match self.before.take() {
                Some(before) => Arc::new(Modules::common(&before, &gone)),
                None => gone,
            });
        }
        next
    }

    /// What the addresses of all eras are in; [`Eras::place`] says which is whose.
    pub(super) fn modules(&self) -> Vec<Arc<Modules>> {
        let newest = self.newest.iter().map(|(_, modules)| Arc::clone(modules));
        newest.chain([self.before.clone().unwrap_or_default()]).collect()
    }

    /// Where the era of this number stands among [`Eras::modules`].
    pub(super) fn place(&self, number: u64) -> usize {
        self.newest.iter().position(|(known, _)| *known == number).unwrap_or(self.newest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::modules::Module;

    const PLACE: u64 = 0x10_0000;

    /// A library that stays, and another one of this build id at [`PLACE`].
    fn state(build_id: &str) -> Arc<Modules> {
        let library = |build_id: &str, start| Arc::new(Modules::only(Module::at(start, build_id)));
        Modules::joined(&library("stays", 2 * PLACE), &library(build_id, PLACE)).unwrap()
    }

    /// Check that sites keep the library that was there when they were met, also where another one takes its place, for so
    /// many eras; and for ever what is there in all of them.
    #[test]
    fn sites_keep_their_library() {
        let mut eras = Eras::default();
        assert_eq!([eras.enter(&state("0")), eras.enter(&state("0"))], [0, 0]);
        let most = 3 * MAX_ERAS as u64;
        for number in 1..most {
            assert_eq!(eras.enter(&state(&number.to_string())), number);
        }
        let modules = eras.modules();
        assert_eq!(modules.len(), MAX_ERAS + 1);
        for number in 0..most {
            let name = |start| modules[eras.place(number)].find(start + 0x1800)?.build_id.clone();
            let is_kept = most - number <= MAX_ERAS as u64;
            assert_eq!(name(PLACE), is_kept.then(|| number.to_string()));
            assert_eq!(name(2 * PLACE).as_deref(), Some("stays"));
        }
    }
}
