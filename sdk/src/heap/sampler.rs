//! The heap profiler where jemalloc has hooks of samples.
//!
//! In: settings, and calls of both threads of ours. Out: windows, marks, figures. Starts and stops the hooks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use profiler_proto::loss::Loss;

use super::HeapSettings;
use super::pace::{self, Pace};
use super::setup::Setup;
use super::state::State;
use super::window::{Found, HeapWindow, Mark, Since};
use super::{control, figures, hooks, weight, window};
use crate::cpu::clocks::process_cpu_time;
use crate::error::Error;
use crate::stats::{HeapLost, HeapStats};
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// The intervals that were chosen by how much the program allocates, as bits, since somebody else chose one: at this start or at one before it, in the process that
/// this one was forked from perhaps.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Whether this interval, as a power of two, is one of these.
fn is_chosen(lg: u32) -> bool {
    CHOSEN.load(Ordering::Relaxed) & 1_u64.checked_shl(lg).unwrap_or(0) != 0
}

/// A running heap profiler; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    state: &'static State,
    /// Which start of the state's this is.
    number: u32,
    shared: Arc<Mutex<Shared>>,
}

/// What is known beside the tables.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    /// When the profile that is open began, and the interval in force then, as a power of two.
    since: (Instant, SystemTime),
    since_lg: u32,
    started: (Instant, SystemTime),
    allocator: Option<crate::stats::AllocatorStats>,
    /// Whether jemalloc takes samples now.
    active: bool,
    /// Whether others have put hooks in the place of ours since the start.
    displaced: bool,
    /// How many samples of what lived have been given up since, for theirs stood in the place of ours.
    given_up: usize,
    /// What chooses the interval; `None`: somebody else has.
    pace: Option<Pace>,
}

impl Sampler {
    /// Starts recording.
    ///
    /// # Errors
    /// What jemalloc or the kernel refused.
    pub(super) fn start(mut setup: Setup, settings: HeapSettings, modules: &Modules) -> Result<Self, Error> {
        let was_active = control::is_active_for_others();
        let snapshot = Snapshot::take(modules);
        let known = hooks::in_force().filter(|state| state.mark.is_ours());
        let state = match known {
            Some(state) => {
                state.replace(snapshot.clone());
                state
            }
            None => Box::leak(Box::new(State::new(snapshot.clone(), settings.most_live)?)),
        };
        let lg_before = state.lg();
        setup.set_interval(settings.lg_interval)?;
        let installed = hooks::install(state, !was_active && !setup.writes_profiles);
        let missed_frees = installed.map_err(control::refused("mallctl experimental.hooks"))?;
        let given_up = if missed_frees { state.give_up_live() } else { 0 };
        if hooks::are_chained() {
            setup.notes.push("hooks of samples that were there before are called, too".to_owned());
        }
        if was_active {
            setup.notes.push("jemalloc took samples before: it still takes stacks of its own for its profile".to_owned());
        }
        let number = state.start_over();
        let active = setup.begin()?;
        // This thread's first sample may still come at the distance that was drawn before.
        if active {
            state.frames.learn(&snapshot, state.lg().max(lg_before));
        }
        // Behind the lessons: stacks that other threads had taken before would show the allocator's frames for as long as their blocks live.
        state.record(true);
        let now = (Instant::now(), SystemTime::now());
        let (is_free, is_ours) = (settings.lg_interval.is_none() && !setup.sets_interval, is_chosen(state.lg()));
        let pace = (is_free && !was_active).then(|| Pace::new(state.lg(), is_ours, now.0)).flatten();
        if !(is_free && is_ours) {
            CHOSEN.store(0, Ordering::Relaxed);
        }
        let shared = Shared {
            setup,
            since: now,
            since_lg: state.lg(),
            started: now,
            allocator: None,
            active,
            displaced: false,
            given_up,
            pace,
        };
        Ok(Self { state, number, shared: Arc::new(Mutex::new(shared)) })
    }

    /// Looks after modules and settings that others may change. For the `profiler` thread, each turn.
    pub(crate) fn tick(&self) {
        let (active, displaced) = (control::look(), hooks::notice_displacement());
        let given_up = if hooks::notice_return() { self.state.give_up_live() } else { 0 };
        self.state.refresh_modules();
        let mut shared = self.shared();
        shared.given_up += given_up;
        shared.active = active;
        // Also where theirs are gone again.
        shared.displaced |= displaced;
    }

    /// Another interval, as a power of two, where nobody has chosen one and samples are too many in the one in force, or few enough for a shorter one. To be set
    /// behind a profile of what was sampled until then. For the `profiler` thread, each turn.
    pub(super) fn choose_interval(&self, now: Instant) -> Option<u32> {
        let mut shared = self.shared();
        let (lg, is_sampling) = (self.state.lg(), shared.active && self.state.is_recording());
        let pace = shared.pace.as_mut()?;
        if !pace.knows(lg) {
            CHOSEN.store(0, Ordering::Relaxed);
            shared.pace = None;
        } else if control::is_active_for_others() {
            shared.pace = None;
        } else if !is_sampling {
            // Paused by us, or turned off by others: a time that says nothing of what samples would cost.
            pace.begin_anew(now);
        } else {
            let chosen = pace.choose(now, self.state.calls.sampled(), process_cpu_time())?;
            // That of now, too: until it is left, a start finds it.
            CHOSEN.store(1 << lg | 1 << chosen, Ordering::Relaxed);
            return Some(chosen);
        }
        None
    }

    /// What was chosen last cannot be had now.
    pub(super) fn leave_choice(&self) {
        if let Some(pace) = &mut self.shared().pace {
            pace.leave_choice(Instant::now());
        }
    }

    /// Somebody else chooses the interval from now on.
    pub(super) fn leave_interval(&self) {
        CHOSEN.store(0, Ordering::Relaxed);
        self.shared().pace = None;
    }

    /// Stops taking samples; frees of those taken are still seen.
    pub(crate) fn pause(&self) {
        self.state.record(false);
        self.shared().active = control::pause();
    }

    /// Takes samples again.
    pub(crate) fn resume(&self) {
        self.state.record(true);
        if control::is_active_for_others() {
            hooks::give_whole_stacks();
        }
        let mut shared = self.shared();
        shared.active = shared.setup.resume();
        if let Some(pace) = &mut shared.pace {
            pace.begin_anew(Instant::now());
        }
    }

    /// Goes on with another interval, `2^lg` bytes. Behind a profile of what was sampled until then.
    ///
    /// # Errors
    /// What jemalloc says.
    pub(crate) fn set_lg_interval(&self, lg: u32) -> Result<(), Error> {
        if control::set_lg_interval(lg)? {
            self.shared().since_lg = lg;
        }
        Ok(())
    }

    /// Has no site forgotten until what is returned is dropped.
    #[cfg(feature = "serve")]
    pub(super) fn keep(&self) -> super::sites::Kept {
        self.state.sites.keep()
    }

    /// What was allocated until now.
    pub(crate) fn mark(&self) -> Mark {
        Mark::now(&self.state.sites)
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
        let (now, lg_now) = ((Instant::now(), SystemTime::now()), self.state.lg());
        let mut shared = self.shared();
        shared.allocator = allocator;
        let ((from, from_at), lg) = match since {
            // Where another interval came since, nearly all of it was sampled at the one before: it is made when another one comes.
            Since::LastProfile => {
                (std::mem::replace(&mut shared.since, now), std::mem::replace(&mut shared.since_lg, lg_now))
            }
            Since::Start | Since::Mark(_) => (began.unwrap_or(shared.started), lg_now),
        };
        drop(shared);
        HeapWindow {
            started_at: from_at,
            duration: now.0.saturating_duration_since(from),
            interval: 1 << lg.min(weight::MAX_LG),
            sites,
            rows,
            without_span,
            eras,
            is_part: !matches!(since, Since::Start),
            knows_allocated: true,
            first,
            stats: self.stats(),
        }
    }

    /// Whether no other one was started since. What is to be sent is that one's then.
    pub(super) fn is_last(&self) -> bool {
        self.state.is_last(self.number)
    }

    /// The next profile begins; nobody gets the one that ends.
    pub(crate) fn skip(&self) {
        let allocator = figures::now();
        window::skip(&self.state.sites, &self.state.live);
        let mut shared = self.shared();
        (shared.allocator, shared.since, shared.since_lg) =
            (allocator, (Instant::now(), SystemTime::now()), self.state.lg());
    }

    /// Figures.
    pub(crate) fn stats(&self) -> HeapStats {
        let counts = &self.state.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // First what came of calls, then the calls: whose hook is on its way is in these alone.
        let (in_table, no_scratch) = (self.state.live.counts(), get(&counts.no_scratch));
        let sampled = self.state.calls.sampled();
        let shared = self.shared();
        let mut notes = shared.setup.notes.clone();
        if !shared.active && self.state.is_recording() && !shared.setup.kept_inactive {
            notes.push("jemalloc's prof.active was turned off by others: no samples".to_owned());
        }
        if self.state.frames.count() == 0 && (shared.active || sampled > 0) {
            notes.push("frames of the allocator are shown: they could not be told apart at the start".to_owned());
        }
        if is_chosen(self.state.lg()) && self.state.lg() > pace::USUAL {
            notes.push(
                "the interval is longer than usual: there were more than 500 samples in a second of CPU time; an interval that you set stays as \
                 it is"
                    .to_owned(),
            );
        }
        if shared.displaced {
            notes.push(
                "others have set jemalloc's hooks since: samples and frees are known as far as theirs call ours"
                    .to_owned(),
            );
        }
        if shared.given_up > 0 {
            let gone = shared.given_up;
            notes.push(format!(
                "{gone} samples of what lived are given up: others had set jemalloc's hooks, so their frees may not be known"
            ));
        }
        HeapStats {
            on: self.state.is_recording() && shared.active,
            interval_bytes: 1 << self.state.lg().min(weight::MAX_LG),
            sampled,
            recorded: in_table.recorded,
            freed: in_table.freed,
            frees: self.state.calls.freed(),
            live: in_table.live,
            unknown: get(&counts.unknown),
            lost: HeapLost { no_scratch, table_full: in_table.table_full, no_memory: in_table.no_memory },
            without_stack: get(&counts.beyond),
            profiles_lost: Loss::default(),
            table_bytes: (self.state.live.bytes() + self.state.sites.table_bytes()) as u64,
            allocator: shared.allocator,
            dumps: None,
            notes,
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
