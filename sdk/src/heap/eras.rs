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
    /// By number, the one in force last.
    newest: Vec<(u64, Arc<Modules>)>,
    /// The number of the next one.
    next: u64,
    /// What all those before have in common.
    before: Option<Arc<Modules>>,
}

impl Eras {
    /// The era of what is allocated from now on, with these modules loaded.
    pub(super) fn enter(&mut self, modules: &Arc<Modules>) -> u64 {
        // Libraries that alternate are the eras that they were, for a new one costs each stack a site of its own.
        let joined = |(at, (_, era)): (usize, &(u64, Arc<Modules>))| Some((at, Modules::joined(era, modules)?));
        if let Some((at, joined)) = self.newest.iter().enumerate().rev().find_map(joined) {
            let (number, _) = self.newest.remove(at);
            self.newest.push((number, joined));
            return number;
        }
        let number = self.next;
        self.next += 1;
        self.newest.push((number, Arc::clone(modules)));
        if self.newest.len() > MAX_ERAS {
            let (_, gone) = self.newest.remove(0);
            self.before = Some(match self.before.take() {
                Some(before) => Arc::new(Modules::common(&before, &gone)),
                None => gone,
            });
        }
        number
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
        // The one before comes back, and goes.
        let back = |eras: &mut Eras, number: u64| assert_eq!(eras.enter(&state(&number.to_string())), number);
        (0..20).for_each(|turn| back(&mut eras, most - 2 + turn % 2));
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
