//! What the kernel side was told of processes, and what it is to be told next.
//!
//! In: processes that were found, numbers of those that ended. Out: what is news to it, each once. On the sampling thread. Pure.

use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::discover::Target;
use crate::target::Process;

#[derive(Debug, Default)]
pub(super) struct Told {
    known: Map<u32, Arc<Target>>,
    found: Vec<Arc<Target>>,
    ended: Vec<u32>,
}

impl Told {
    /// Which process has this number, as far as was told.
    pub(super) fn process(&self, pid: u32) -> Option<Process> {
        self.known.get(&pid).map(|target| target.process)
    }

    /// Notes what is to be told, if it is not known yet.
    pub(super) fn find(&mut self, target: &Arc<Target>) {
        let pid = target.process.pid();
        if self.known.get(&pid).is_none_or(|known| !Arc::ptr_eq(known, target)) {
            self.known.insert(pid, Arc::clone(target));
            self.found.push(Arc::clone(target));
        }
    }

    /// An exec may have been missed, at which the kernel side forgot what it was told: it is told of all again.
    pub(super) fn doubt(&mut self) {
        self.found = self.known.values().map(Arc::clone).collect();
    }

    /// What is known of a process is of no use any more.
    pub(super) fn end_of(&mut self, pid: u32) {
        if self.known.remove(&pid).is_some() {
            self.found.retain(|target| target.process.pid() != pid);
            self.ended.push(pid);
        }
    }

    /// Numbers of those that ended: these are told first.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// What was found since.
    pub(super) fn found(&mut self) -> Vec<Arc<Target>> {
        std::mem::take(&mut self.found)
    }
}
