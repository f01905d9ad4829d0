//! How often jemalloc takes a sample, and whether it takes any: the same with hooks and with dumps.
//!
//! In: settings. Out: what is in force, or what jemalloc refused.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::jemalloc::{self, Number};
use super::setup::Setup;
use super::weight::MAX_LG;
use crate::error::Error;

/// Whether samples are taken because we turned them on: here, or before the fork in the process that this one is a child of.
static TURNED_ON: AtomicBool = AtomicBool::new(false);

/// Why the interval stays as it is.
const OF_OTHERS: &str = "jemalloc took samples before, for others or by its options, and another interval would wipe that profile (prof.reset)";

thread_local! {
    /// The interval in force at the calling thread's last sample, as a power of two: behind that, jemalloc draws the distance to its next one. `None`: it has none
    /// yet.
    static DRAWN_WITH: Cell<Option<u32>> = const { Cell::new(None) };
}

/// An error that says what jemalloc refused.
pub(super) fn refused(name: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |why| Error::environment(name, why, "turn heap profiles off with PROFILER_HEAP=0")
}

/// Bytes between samples, as a power of two: as anybody has set it last.
#[derive(Debug, Clone, Copy)]
pub(super) struct LgInterval(Number);

impl LgInterval {
    /// The one of this jemalloc.
    ///
    /// # Errors
    /// What jemalloc refused.
    pub(super) fn find() -> Result<Self, Error> {
        Number::named(c"prof.lg_sample").map(Self).map_err(refused("mallctl prof.lg_sample"))
    }

    /// What the calling thread's sample was drawn with, and is to be weighed by. For hooks, once for each sample.
    pub(super) fn of_sample(self) -> u32 {
        let now = self.now();
        DRAWN_WITH.replace(Some(now)).unwrap_or(now)
    }

    /// What it is now. Callable from a hook.
    pub(super) fn now(self) -> u32 {
        self.0.read() as u32
    }
}

/// Bytes between samples, as a power of two.
pub(super) fn lg_interval() -> Result<u32, Error> {
    LgInterval::find().map(LgInterval::now)
}

/// Goes on with this interval; whether it is another one, upon which jemalloc forgets what it counted itself.
///
/// # Errors
/// Where it takes samples for others, whose counts these are too, and what jemalloc refused.
pub(super) fn set_lg_interval(lg: u32) -> Result<bool, Error> {
    if lg == lg_interval()? {
        return Ok(false);
    }
    let remedy = "leave the interval as it is";
    if is_active_for_others() {
        return Err(Error::misuse("the interval between samples of the heap", OF_OTHERS, remedy));
    }
    jemalloc::write(c"prof.reset", lg as usize).map_err(|why| Error::environment("mallctl prof.reset", why, remedy))?;
    Ok(true)
}

/// Whether jemalloc takes samples now.
pub(super) fn is_active() -> bool {
    jemalloc::read(c"prof.active").unwrap_or(false)
}

/// The same, looked at now and then: where it takes none although we turned it on, others turned it off, and whoever turns it on again does so for
/// themselves.
pub(super) fn look() -> bool {
    let active = is_active();
    if !active {
        TURNED_ON.store(false, Ordering::Relaxed);
    }
    active
}

/// Whether it does because somebody else wants it.
pub(super) fn is_active_for_others() -> bool {
    is_active() && !TURNED_ON.load(Ordering::Relaxed)
}

/// Has jemalloc take samples, unless it does: then it is for others, or we turned it on.
fn turn_on() -> io::Result<()> {
    if !is_active() {
        jemalloc::write(c"prof.active", true)?;
        TURNED_ON.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Has jemalloc take none, unless somebody else turned them on; whether it does.
pub(super) fn pause() -> bool {
    if TURNED_ON.swap(false, Ordering::Relaxed) {
        // It was set before, so it can be.
        drop(jemalloc::write(c"prof.active", false));
    }
    is_active()
}

impl Setup {
    /// Has jemalloc take samples as often as is asked for, unless others have said how often: the user in the environment, or whoever had samples taken before.
    pub(super) fn set_interval(&mut self, asked: Option<u32>) -> Result<(), Error> {
        let now = lg_interval()?;
        let Some(asked) = asked.filter(|asked| *asked != now) else { return Ok(()) };
        let why = match (self.sets_interval, is_active_for_others()) {
            (true, _) => "the environment says so (lg_prof_sample)",
            (_, true) => OF_OTHERS,
            _ => return set_lg_interval(asked).map(drop),
        };
        let bytes = |lg: u32| 1_u64 << lg.min(MAX_LG);
        self.notes.push(format!("one sample for {} bytes, not for {}: {why}", bytes(now), bytes(asked)));
        Ok(())
    }

    /// Has jemalloc take samples, unless the user said no; whether it does.
    pub(super) fn begin(&mut self) -> Result<bool, Error> {
        if self.kept_inactive {
            let note = "no samples: prof_active:false in the environment; take it out, or turn them on with mallctl prof.active";
            self.notes.push(note.to_owned());
        } else {
            turn_on().map_err(refused("mallctl prof.active"))?;
        }
        Ok(is_active())
    }

    /// Has it take them again, as others have left it by now; whether it does.
    pub(super) fn resume(&self) -> bool {
        if !self.kept_inactive {
            // It was set before, so it can be.
            drop(turn_on());
        }
        is_active()
    }
}
