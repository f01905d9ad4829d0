//! Heap sampling in builds without the feature `heap`: there is none.
//!
//! In: settings. Out: an error or a line that says what is missing. The twin of `either`; its values cannot exist, so
//! nothing of them can be called.

use std::time::{Instant, SystemTime};

use super::HeapSettings;
use crate::error::Error;
use crate::stats::HeapStats;
use crate::unwind::modules::Modules;

/// A running heap profiler: impossible here.
#[derive(Debug, Clone)]
pub(crate) enum Heap {}

/// The heap at one time: never known here.
#[derive(Debug)]
pub(crate) enum HeapWindow {}

/// What was allocated: since when?
#[derive(Debug)]
pub(crate) enum Since {
    /// The last profile of this kind.
    LastProfile,
    /// The start of the profiler.
    Start,
    /// A mark that was made before.
    Mark(Mark),
}

/// What was allocated until some time: never known here.
#[derive(Debug)]
pub(crate) struct Mark;

impl Heap {
    pub(crate) fn start(
        settings: HeapSettings,
        _modules: &Modules,
        _memfd: bool,
    ) -> Result<Result<Self, String>, Error> {
        const WHY: &str = "the crate was built without its feature `heap`";
        match settings.wanted {
            Some(true) => Err(Error::misuse(
                "heap profiles",
                WHY,
                "write features = [\"heap\"] behind profiler-sdk in Cargo.toml and profiler::jemalloc!(); in main.rs, or do not ask for them",
            )),
            _ => Ok(Err(WHY.to_owned())),
        }
    }

    pub(crate) fn tick(&self) {
        match *self {}
    }

    pub(crate) fn pause(&self) {
        match *self {}
    }

    pub(crate) fn resume(&self) {
        match *self {}
    }

    pub(crate) fn choose_interval(&self, _now: Instant) -> Option<u32> {
        match *self {}
    }

    pub(crate) fn leave_choice(&self) {
        match *self {}
    }

    pub(crate) fn leave_interval(&self) {
        match *self {}
    }

    pub(crate) fn set_lg_interval(&self, _lg: u32) -> Result<(), Error> {
        match *self {}
    }

    #[cfg(feature = "serve")]
    pub(crate) fn keep(&self) {
        match *self {}
    }

    pub(crate) fn mark(&self) -> Mark {
        match *self {}
    }

    pub(crate) fn window(
        &self,
        _since: &Since,
        _began: Option<(Instant, SystemTime)>,
        _first: Option<&'static str>,
    ) -> HeapWindow {
        match *self {}
    }

    pub(crate) fn is_last(&self) -> bool {
        match *self {}
    }

    pub(crate) fn skip(&self) {
        match *self {}
    }

    pub(crate) fn stats(&self) -> HeapStats {
        match *self {}
    }
}

/// Nothing that the calling thread allocates is sampled.
pub(crate) fn leave_out_this_thread() {}
