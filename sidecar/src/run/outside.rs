//! What of which process is read from outside, and what a pull told of it meanwhile: one book for both, so that neither tells what the other one has told.
//!
//! In: what captures read, what pulls have the differences of. Out: to each what the other one told. On the thread that captures and the main thread; each
//! entry is one step.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::capture::What;
use crate::target::Process;

/// The book.
#[derive(Debug, Default)]
pub(super) struct Outside {
    processes: Mutex<HashMap<Process, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// What was read last; `None`: that was not tried yet.
    read: Option<Vec<What>>,
    /// What pulls told since a capture asked last.
    pulled: HashSet<What>,
}

impl Outside {
    /// A capture begins: what pulls told of `process` since the one before.
    pub(super) fn begin(&self, process: Process) -> HashSet<What> {
        self.processes().get_mut(&process).map(|entry| std::mem::take(&mut entry.pulled)).unwrap_or_default()
    }

    /// A capture ends, and has read these kinds: nothing, where it could not. What pulls told since it began, so that it is not for the capture to tell.
    pub(super) fn end(&self, process: Process, read: Vec<What>) -> HashSet<What> {
        let mut processes = self.processes();
        let entry = processes.entry(process).or_default();
        entry.read = Some(read);
        std::mem::take(&mut entry.pulled)
    }

    /// Nothing of `process` is read for now; what pulls tell of it stays entered for the next capture.
    pub(super) fn leave(&self, process: Process) {
        self.processes().entry(process).or_default().read = Some(Vec::new());
    }

    /// A pull has the differences of these kinds: enters those that are for it to tell, and gives those that are not, as they are read from outside by now.
    pub(super) fn pulled(&self, process: Process, kinds: impl IntoIterator<Item = What>) -> Vec<What> {
        let mut processes = self.processes();
        let entry = processes.entry(process).or_default();
        let read = entry.read.clone().unwrap_or_default();
        entry.pulled.extend(kinds.into_iter().filter(|what| !read.contains(what)));
        read
    }

    /// What of `process` is read; `None`: it was not tried yet.
    pub(super) fn read(&self, process: Process) -> Option<Vec<What>> {
        self.processes().get(&process)?.read.clone()
    }

    /// Forgets all but those that live.
    pub(super) fn retain(&self, living: &HashSet<Process>) {
        self.processes().retain(|process, _| living.contains(process));
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<Process, Entry>> {
        // Entries are replaced whole.
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a kind that a pull tells while it is read is told by one of the two: by the one that enters it first.
    #[test]
    fn what_is_read_and_pulled_at_once_is_told_once() {
        let (outside, process) = (Outside::default(), Process::new(1, 1));
        assert_eq!((outside.read(process), outside.begin(process)), (None, HashSet::new()));
        // The pull is first.
        assert_eq!(outside.pulled(process, [What::Heap]), []);
        assert_eq!(outside.end(process, vec![What::Heap, What::Block]), HashSet::from([What::Heap]));
        // The capture is.
        assert_eq!(outside.begin(process), HashSet::new());
        assert_eq!(outside.pulled(process, [What::Heap, What::Mutex]), [What::Heap, What::Block]);
        assert_eq!(outside.end(process, Vec::new()), HashSet::from([What::Mutex]));
        // Between two of them.
        assert_eq!(outside.pulled(process, [What::Heap]), []);
        outside.leave(process);
        assert_eq!(outside.begin(process), HashSet::from([What::Heap]));
        outside.retain(&HashSet::new());
        assert_eq!(outside.read(process), None);
    }
}
