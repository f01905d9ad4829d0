//! The heap profiler as the rest of the crate knows it.
//!
//! In: settings, and calls of both threads of ours. Out: what the one that this jemalloc allows says: by hooks, or, where it has none, by its
//! dumps.

use std::time::{Instant, SystemTime};

use super::HeapSettings;
use super::dumps::Dumps;
use super::sampler::Sampler;
use super::setup::{Missing, Setup};
#[cfg(feature = "serve")]
use super::sites::Kept;
use super::window::{HeapWindow, Mark, Since};
use super::jemalloc;
use crate::error::Error;
use crate::stats::HeapStats;
use crate::unwind::modules::Modules;

/// A running heap profiler; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Heap {
    /// Knows each sample, with tags and span.
    Hooks(Sampler),
    /// Knows what jemalloc counts itself.
    Dumps(Dumps),
}

impl Heap {
    /// Starts recording. `Ok(Err(why))` where it cannot be had and was not asked for by name. `memfd`: `memfd_create` may be tried.
    ///
    /// # Errors
    /// Where it cannot be had and was asked for.
    pub(crate) fn start(
        settings: HeapSettings,
        modules: &Modules,
        memfd: bool,
    ) -> Result<Result<Self, String>, Error> {
        if settings.wanted == Some(false) {
            return Ok(Err("turned off by Config::heap or PROFILER_HEAP".to_owned()));
        }
        let heap = match Setup::find() {
            Ok(setup) if setup.has_hooks => Sampler::start(setup, settings, modules).map(Self::Hooks),
            Ok(setup) => Dumps::start(setup, settings, modules, memfd).map(Self::Dumps),
            Err(missing) => Err(error(missing)),
        };
        match heap {
            Ok(heap) => {
                heap.stats().notes.iter().for_each(|note| tracing::info!("the heap: {note}"));
                Ok(Ok(heap))
            }
            Err(error) if settings.wanted == Some(true) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Looks after modules and settings that others may change. For the `profiler` thread, each turn.
    pub(crate) fn tick(&self) {
        match self {
            Self::Hooks(sampler) => sampler.tick(),
            Self::Dumps(dumps) => dumps.tick(),
        }
    }

    /// Stops taking samples; frees of those taken are still seen.
    pub(crate) fn pause(&self) {
        match self {
            Self::Hooks(sampler) => sampler.pause(),
            Self::Dumps(dumps) => dumps.record(false),
        }
    }

    /// Takes samples again.
    pub(crate) fn resume(&self) {
        match self {
            Self::Hooks(sampler) => sampler.resume(),
            Self::Dumps(dumps) => dumps.record(true),
        }
    }

    /// Another interval, as a power of two, where it is time for one and nobody has chosen one. For the `profiler` thread, each turn.
    pub(crate) fn choose_interval(&self, now: Instant) -> Option<u32> {
        match self {
            Self::Hooks(sampler) => sampler.choose_interval(now),
            Self::Dumps(_) => None,
        }
    }

    /// The interval that was chosen last cannot be set now: another one may be, later.
    pub(crate) fn leave_choice(&self) {
        if let Self::Hooks(sampler) = self {
            sampler.leave_choice();
        }
    }

    /// Somebody else chooses the interval from now on.
    pub(crate) fn leave_interval(&self) {
        if let Self::Hooks(sampler) = self {
            sampler.leave_interval();
        }
    }

    /// Goes on with another interval, `2^lg` bytes.
    ///
    /// # Errors
    /// What jemalloc says.
    pub(crate) fn set_lg_interval(&self, lg: u32) -> Result<(), Error> {
        match self {
            Self::Hooks(sampler) => sampler.set_lg_interval(lg),
            Self::Dumps(dumps) => dumps.set_lg_interval(lg),
        }
    }

    /// Has no site forgotten until what is returned is dropped. Dumps forget none.
    #[cfg(feature = "serve")]
    pub(crate) fn keep(&self) -> Option<Kept> {
        match self {
            Self::Hooks(sampler) => Some(sampler.keep()),
            Self::Dumps(_) => None,
        }
    }

    /// What was allocated until now. Of dumps nothing: one is never made on the caller's thread.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            Self::Hooks(sampler) => sampler.mark(),
            Self::Dumps(_) => Mark::default(),
        }
    }

    /// What is known of the heap now, of which what was allocated `began` at the mark, where there is one; viewers of pprof
    /// show the type `first` first. For the `profiler-io` thread.
    ///
    /// # Errors
    /// What keeps jemalloc from a dump.
    pub(crate) fn window(
        &self,
        since: &Since,
        began: Option<(Instant, SystemTime)>,
        first: Option<&'static str>,
    ) -> Result<HeapWindow, Error> {
        match self {
            Self::Hooks(sampler) => Ok(sampler.window(since, began, first)),
            Self::Dumps(dumps) => dumps.window(since, first),
        }
    }

    /// Whether what is to be sent is this one's: no other one was started since, which takes it from there. Dumps share nothing.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Hooks(sampler) => sampler.is_last(),
            Self::Dumps(_) => true,
        }
    }

    /// The next profile begins; nobody gets the one that ends. Dumps are left until somebody asks.
    pub(crate) fn skip(&self) {
        if let Self::Hooks(sampler) = self {
            sampler.skip();
        }
    }

    /// Figures.
    pub(crate) fn stats(&self) -> HeapStats {
        match self {
            Self::Hooks(sampler) => sampler.stats(),
            Self::Dumps(dumps) => dumps.stats(),
        }
    }
}

/// Nothing that the calling thread allocates is sampled: for our own threads.
pub(crate) fn leave_out_this_thread() {
    // Fails where jemalloc has no profiling, and nothing is sampled anyway.
    drop(jemalloc::write(c"thread.prof.active", false));
}

fn error(missing: Missing) -> Error {
    Error::misuse("heap profiles", missing.why, missing.remedy)
}
