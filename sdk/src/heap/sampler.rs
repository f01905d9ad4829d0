//! The heap profiler as the rest of the crate knows it.
//!
//! In: settings, and calls of both threads of ours. Out: windows, marks, figures. Starts and stops the hooks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::HeapSettings;
use super::inherited::Mark as Inherited;
use super::setup::{Missing, Setup};
use super::state::State;
use super::window::{Found, HeapWindow, Mark, Since};
use super::{figures, hooks, jemalloc, weight, window};
use crate::error::Error;
use crate::stats::{HeapLost, HeapStats};
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// A running heap profiler; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Heap {
    state: &'static State,
    shared: Arc<Mutex<Shared>>,
}

/// What is known beside the tables.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    /// When the profile that is open began.
    since: (Instant, SystemTime),
    started: (Instant, SystemTime),
    /// Unwinders that were replaced, for as long as a hook may hold them.
    replaced: Vec<Arc<Snapshot>>,
    allocator: Option<crate::stats::AllocatorStats>,
    /// Whether jemalloc takes samples now.
    active: bool,
    /// Whether others have put hooks in the place of ours.
    displaced: bool,
}

impl Heap {
    /// Starts recording. `Ok(Err(why))` where it cannot be had and was not asked for by name.
    ///
    /// # Errors
    /// Where it cannot be had and was asked for.
    pub(crate) fn start(settings: HeapSettings, modules: &Modules) -> Result<Result<Self, String>, Error> {
        if settings.wanted == Some(false) {
            return Ok(Err("turned off by Config::heap or PROFILER_HEAP".to_owned()));
        }
        let heap = match Setup::find() {
            Ok(setup) => Self::on(setup, settings, modules),
            Err(missing) => Err(error(missing)),
        };
        match heap {
            Ok(heap) => Ok(Ok(heap)),
            Err(error) if settings.wanted == Some(true) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn on(mut setup: Setup, settings: HeapSettings, modules: &Modules) -> Result<Self, Error> {
        let snapshot = Arc::new(Snapshot::take(modules));
        let known = hooks::in_force().filter(|state| state.mark.is_ours());
        let state = match known {
            Some(state) => state,
            None => {
                Box::leak(Box::new(State::new(Arc::clone(&snapshot), settings.most_live, Inherited::make()?)))
            }
        };
        let replaced = state.replace(Arc::clone(&snapshot));
        let refused = |name: &'static str| {
            move |why| Error::environment(name, why, "turn heap profiles off with PROFILER_HEAP=0")
        };
        let read_lg = || jemalloc::read::<usize>(c"prof.lg_sample").map_err(refused("mallctl prof.lg_sample"));
        let lg_before = read_lg()?;
        if let Some(lg) = settings.lg_interval {
            jemalloc::write(c"prof.reset", lg as usize).map_err(refused("mallctl prof.reset"))?;
        }
        let lg = read_lg()?;
        state.set_lg(lg as u32);
        hooks::install(state, !setup.was_active).map_err(refused("mallctl experimental.hooks"))?;
        if hooks::others() {
            setup.notes.push("hooks of samples that were there before are called, too".to_owned());
        }
        if setup.was_active {
            setup.notes.push("jemalloc took samples before: it still takes stacks of its own for its profile".to_owned());
        }
        state.record(true);
        if setup.kept_inactive {
            let note = "no samples: prof_active:false in the environment; mallctl prof.active turns them on";
            setup.notes.push(note.to_owned());
        } else if !setup.was_active {
            jemalloc::write(c"prof.active", true).map_err(refused("mallctl prof.active"))?;
        }
        let active = jemalloc::read(c"prof.active").unwrap_or(false);
        // This thread's first sample may still come at the distance that was drawn before.
        if active && state.frames.learn(&snapshot, lg.max(lg_before) as u32) == 0 {
            setup.notes.push("frames of the allocator are shown: they could not be told apart".to_owned());
        }
        let now = (Instant::now(), SystemTime::now());
        let shared = Shared {
            setup,
            since: now,
            started: now,
            replaced: vec![replaced],
            allocator: None,
            active,
            displaced: false,
        };
        Ok(Self { state, shared: Arc::new(Mutex::new(shared)) })
    }

    /// Looks after modules and settings that others may change. For the `profiler` thread, each turn.
    pub(crate) fn tick(&self) {
        if let Ok(lg) = jemalloc::read::<usize>(c"prof.lg_sample") {
            self.state.set_lg(lg as u32);
        }
        let mut shared = self.shared();
        shared.active = jemalloc::read(c"prof.active").unwrap_or(false);
        shared.displaced = hooks::are_displaced();
        let (known, _) = self.state.snapshot();
        if Modules::changes_now() != known.modules.changes {
            let snapshot = Arc::new(Snapshot::take(&known.modules));
            let replaced = self.state.replace(snapshot);
            shared.replaced.push(replaced);
        }
        drop(known);
        shared.replaced.retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }

    /// Stops taking samples; frees of those taken are still seen.
    pub(crate) fn pause(&self) {
        self.state.record(false);
        let mut shared = self.shared();
        if !shared.setup.was_active {
            // It was set before, so it can be.
            drop(jemalloc::write(c"prof.active", false));
            shared.active = false;
        }
    }

    /// Takes samples again.
    pub(crate) fn resume(&self) {
        self.state.record(true);
        let mut shared = self.shared();
        if !shared.setup.kept_inactive {
            drop(jemalloc::write(c"prof.active", true));
            shared.active = true;
        }
    }

    /// Goes on with another interval, `2^lg` bytes.
    ///
    /// # Errors
    /// What jemalloc says.
    pub(crate) fn set_lg_interval(&self, lg: u32) -> Result<(), Error> {
        jemalloc::write(c"prof.reset", lg as usize)
            .map_err(|why| Error::environment("mallctl prof.reset", why, "leave the interval as it is"))?;
        self.state.set_lg(lg);
        Ok(())
    }

    /// What was allocated until now.
    pub(crate) fn mark(&self) -> Mark {
        Mark::now(self.state)
    }

    /// What is known of the heap now, of which what was allocated `began` at the mark, where there is one; viewers of pprof
    /// show the type `first` first. For the `profiler-io` thread.
    pub(crate) fn window(
        &self,
        since: &Since,
        began: Option<(Instant, SystemTime)>,
        first: Option<&'static str>,
    ) -> HeapWindow {
        let allocator = figures::now();
        let Found { rows, sites, eras, without_span } = window::found(self.state, since);
        let now = (Instant::now(), SystemTime::now());
        let mut shared = self.shared();
        shared.allocator = allocator;
        let (from, from_at) = match since {
            Since::LastProfile => std::mem::replace(&mut shared.since, now),
            Since::Start | Since::Mark(_) => began.unwrap_or(shared.started),
        };
        drop(shared);
        HeapWindow {
            started_at: from_at,
            duration: now.0.saturating_duration_since(from),
            interval: 1 << self.state.lg().min(weight::MAX_LG),
            sites,
            rows,
            without_span,
            eras,
            first,
            stats: self.stats(),
        }
    }

    /// The next profile begins; nobody gets the one that ends.
    pub(crate) fn skip(&self) {
        drop(self.window(&Since::LastProfile, None, None));
    }

    /// Figures.
    pub(crate) fn stats(&self) -> HeapStats {
        let counts = &self.state.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = self.shared();
        let mut notes = shared.setup.notes.clone();
        if !shared.active && self.state.is_recording() && !shared.setup.kept_inactive {
            notes.push("jemalloc's prof.active was turned off by others: no samples".to_owned());
        }
        if shared.displaced {
            notes.push(
                "others have set jemalloc's hooks since: samples and frees are known as far as theirs call ours"
                    .to_owned(),
            );
        }
        HeapStats {
            on: self.state.is_recording() && shared.active,
            interval_bytes: 1 << self.state.lg().min(weight::MAX_LG),
            sampled: get(&counts.sampled),
            recorded: get(&counts.recorded),
            freed: get(&counts.freed),
            live: self.state.live.len() as u64,
            unknown: get(&counts.unknown),
            lost: HeapLost {
                no_scratch: get(&counts.no_scratch),
                table_full: get(&counts.table_full),
                no_memory: get(&counts.no_memory),
            },
            not_noted: self.state.sites.not_noted(),
            without_stack: get(&counts.beyond),
            table_bytes: (self.state.live.bytes() + self.state.sites.bytes()) as u64,
            allocator: shared.allocator,
            notes,
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
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
