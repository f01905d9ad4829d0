//! The heap profiler where jemalloc has no hooks of samples (5.3.0 and before): dumps of what jemalloc counts itself.
//!
//! In: settings, and calls of both threads of ours. Out: windows without tags and spans, in which what was allocated stands only if jemalloc
//! keeps count of it; figures. A dump is made on the `profiler-io` thread when a profile is asked for, and, where jemalloc keeps that count, one by whoever calls
//! `start`, for it may have begun before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use super::HeapSettings;
use super::reading::{Reading, Rows};
use super::setup::Setup;
use super::window::{HeapWindow, Since};
use super::{control, dump, figures, jemalloc, weight};
use crate::error::Error;
use crate::stats::{AllocatorStats, HeapDumps, HeapStats};
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

const NO_HOOKS: &str = "this jemalloc has no hooks for samples (5.3.1 has): heap profiles are its own dumps, without tags and spans; use \
                        tikv-jemallocator 0.7 or newer";
const NO_COUNT: &str = "what was allocated is not known: jemalloc keeps count of it with prof_accum:true";

/// A running heap profiler; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dumps {
    shared: Arc<Mutex<Shared>>,
    /// Locked while a dump is made and read, by the `profiler-io` thread.
    reading: Arc<Mutex<Reading>>,
}

/// What both threads know. Never locked for long.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    recording: bool,
    /// Whether jemalloc takes samples now.
    active: bool,
    /// When jemalloc began to count what is shown.
    started: (Instant, SystemTime),
    /// When the profile that is open began.
    since: (Instant, SystemTime),
    /// The modules now, and what addresses may be told by that were sampled at any time.
    snapshot: Arc<Snapshot>,
    ever: Arc<Modules>,
    dumps: HeapDumps,
    live: u64,
    allocator: Option<AllocatorStats>,
    /// Why there was no dump when one was asked for last.
    refused: Option<String>,
}

impl Dumps {
    /// Starts recording.
    ///
    /// # Errors
    /// What jemalloc or the kernel refused.
    pub(super) fn start(
        mut setup: Setup,
        settings: HeapSettings,
        modules: &Modules,
        memfd: bool,
    ) -> Result<Self, Error> {
        if !memfd {
            let why = "jemalloc has no hooks for samples, and a filter of system calls (seccomp) would end the process for memfd_create";
            return Err(Error::misuse("heap profiles", why, "use tikv-jemallocator 0.7 or newer"));
        }
        drop(dump::file()?);
        let lg_before = control::lg_interval()?;
        setup.set_interval(settings.lg_interval)?;
        let accumulated = jemalloc::read(c"opt.prof_accum").unwrap_or(false);
        let mut reading = Reading::new(lg_before);
        if accumulated {
            reading.begin(&dump::take()?.dump);
        }
        let active = setup.begin()?;
        setup.notes.push(NO_HOOKS.to_owned());
        setup.notes.extend((!accumulated).then(|| NO_COUNT.to_owned()));
        tracing::warn!("{NO_HOOKS}");
        let snapshot = Arc::new(Snapshot::take(modules));
        let now = (Instant::now(), SystemTime::now());
        let shared = Shared {
            setup,
            recording: true,
            active,
            started: now,
            since: now,
            ever: Arc::clone(&snapshot.modules),
            snapshot,
            dumps: HeapDumps { accumulated, ..HeapDumps::default() },
            live: 0,
            allocator: None,
            refused: None,
        };
        Ok(Self { shared: Arc::new(Mutex::new(shared)), reading: Arc::new(Mutex::new(reading)) })
    }

    /// Looks after modules and settings that others may change. For the `profiler` thread, each turn.
    pub(super) fn tick(&self) {
        let active = control::look();
        let (known, ever) = {
            let shared = self.shared();
            (Arc::clone(&shared.snapshot), Arc::clone(&shared.ever))
        };
        // Takes long where there are many modules, and whoever asks for figures waits for the lock.
        let changed = (Modules::changes_now() != known.modules.changes).then(|| {
            let snapshot = Arc::new(Snapshot::take(&known.modules));
            let now = &snapshot.modules;
            // No dump says when a block was allocated.
            let ever = Modules::joined(&ever, now).unwrap_or_else(|| Arc::new(Modules::common(&ever, now)));
            (snapshot, ever)
        });
        let mut shared = self.shared();
        shared.active = active;
        if let Some(changed) = changed {
            (shared.snapshot, shared.ever) = changed;
        }
    }

    /// Whether samples are to be taken.
    pub(super) fn record(&self, on: bool) {
        let mut shared = self.shared();
        shared.recording = on;
        shared.active = if on { shared.setup.resume() } else { control::pause() };
    }

    /// Goes on with another interval, upon which jemalloc begins anew to count. For the `profiler-io` thread, behind the profile of what it counted until
    /// then.
    ///
    /// # Errors
    /// What jemalloc says.
    pub(super) fn set_lg_interval(&self, lg: u32) -> Result<(), Error> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if control::set_lg_interval(lg)? {
            reading.forget();
            let now = (Instant::now(), SystemTime::now());
            let mut shared = self.shared();
            (shared.started, shared.since) = (now, now);
        }
        Ok(())
    }

    /// What is known of the heap now.
    pub(super) fn window(&self, since: &Since, first: Option<&'static str>) -> Result<HeapWindow, Error> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (snapshot, accumulated) = {
            let shared = self.shared();
            (Arc::clone(&shared.snapshot), shared.dumps.accumulated)
        };
        let allocator = figures::now();
        let taken = reading.take(&snapshot);
        let mut shared = self.shared();
        shared.allocator = allocator;
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                shared.dumps.failed += 1;
                shared.refused = Some(error.to_string());
                return Err(error);
            }
        };
        shared.refused = None;
        shared.dumps.read += 1;
        shared.dumps.bytes = taken.bytes;
        shared.dumps.cut += u64::from(taken.is_cut);
        shared.live = taken.dump.in_all.live;
        let now = (Instant::now(), SystemTime::now());
        let from = match since {
            Since::LastProfile => std::mem::replace(&mut shared.since, now),
            Since::Start | Since::Mark(_) => shared.started,
        };
        let eras = vec![Arc::clone(&shared.ever)];
        drop(shared);
        let Rows { sites, rows } = reading.rows(&taken, since, &snapshot);
        Ok(HeapWindow {
            started_at: from.1,
            duration: now.0.saturating_duration_since(from.0),
            interval: taken.dump.interval,
            sites,
            rows,
            without_span: 0,
            eras,
            is_part: matches!(since, Since::LastProfile),
            knows_allocated: accumulated && !matches!(since, Since::Mark(_)),
            first,
            stats: self.stats(),
        })
    }

    /// Figures.
    pub(super) fn stats(&self) -> HeapStats {
        let shared = self.shared();
        let mut notes = shared.setup.notes.clone();
        if !shared.active && shared.recording && !shared.setup.kept_inactive {
            notes.push("jemalloc's prof.active was turned off by others: no samples".to_owned());
        }
        notes.extend(shared.refused.iter().map(|why| format!("the last dump was refused: {why}")));
        HeapStats {
            on: shared.recording && shared.active,
            interval_bytes: 1 << control::lg_interval().unwrap_or(0).min(weight::MAX_LG),
            live: shared.live,
            allocator: shared.allocator,
            dumps: Some(shared.dumps.clone()),
            notes,
            ..HeapStats::default()
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing is tried where a filter would end the process for it, and that the error says what to do.
    #[test]
    fn a_deadly_filter_is_an_error() {
        let setup = Setup {
            has_hooks: false,
            kept_inactive: false,
            sets_interval: false,
            writes_profiles: false,
            notes: Vec::new(),
        };
        let error = Dumps::start(setup, HeapSettings::default(), &Modules::default(), false).unwrap_err().to_string();
        assert!(error.contains("memfd_create") && error.contains("tikv-jemallocator 0.7"), "{error}");
    }
}
