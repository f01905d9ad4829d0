//! The guard that a user holds.
//!
//! In: settings. Out: a profiler that runs ([`running`]) until the guard goes; on systems without a sampler, an error that
//! says so ([`elsewhere`]). The guard is the same on both, so that what is written with it builds everywhere. Nothing here
//! blocks longer than the caller allows.

#[cfg(any(test, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
#[cfg_attr(
    all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "only what it says is tried here")
)]
mod elsewhere;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod running;

use std::net::SocketAddr;
use std::time::Duration;

use profiler_proto::ProfileSet;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use self::elsewhere::Running;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::running::Running;
use crate::config::{self, Config};
use crate::error::Error;
use crate::export::unknown_variables;
use crate::stats::Stats;

/// How long dropping the guard may take.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that anything waits or captures, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Keeps the profiler running; sampling stops, and what was sampled leaves, when it is dropped.
///
/// Bind it to a name in `main` (`let _profiler = …`); `let _ = …` would drop it at once.
#[derive(Debug)]
#[must_use = "profiling ends when this guard is dropped; bind it to a name such as `_profiler`"]
pub struct Profiler {
    /// `None`: turned off by `PROFILER_ENABLED=0`, or ended.
    running: Option<Running>,
}

/// What a capture measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProfileKind {
    /// CPU time, by samples.
    #[default]
    Cpu,
    /// The heap: what was allocated within the time, or since the start where that is zero; and what lives at its end.
    Heap,
}

/// Starts profiling this process: `profiler::start("checkout")`, or with a [`Config`]. Takes less than 10 ms.
///
/// # Errors
/// A setting that cannot be, a profiler that runs already, an address that cannot be bound, no timer to be had; a system
/// that is not Linux on x86_64 or aarch64. The process then goes on without a profiler.
pub fn start(config: impl Into<Config>) -> Result<Profiler, Error> {
    let lookup = |name: &str| std::env::var_os(name);
    // First of all, so that it also turns off what cannot be set up.
    if !config::enabled(&lookup)? {
        tracing::info!("turned off by PROFILER_ENABLED");
        return Ok(Profiler { running: None });
    }
    let settings = config.into().resolve(&lookup)?;
    let unknown = unknown_variables(std::env::vars_os().map(|(name, _)| name));
    if !unknown.is_empty() {
        tracing::warn!("variables have no effect, for no setting has such a name: {unknown:?}");
    }
    Ok(Profiler { running: Some(Running::start(settings)?) })
}

impl Profiler {
    /// Sends what was sampled until now.
    ///
    /// `true`: all that waited by then was accepted by every destination. `false`: the time was over first, or a destination refused something
    /// or will not get it for another reason; [`Profiler::stats`] says which, and for what cause.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.running().is_none_or(|running| running.flush(timeout.min(LONGEST)))
    }

    /// Stops sampling, sends what is left, ends both threads. It answers as [`Profiler::flush`] does: what was not sent by then
    /// is lost, and counted so in the log.
    pub fn shutdown(mut self, timeout: Duration) -> bool {
        self.end(timeout)
    }

    /// Stops taking samples until [`Profiler::resume`]. The timers are gone meanwhile.
    pub fn pause(&self) {
        if let Some(running) = self.running() {
            running.pause();
        }
    }

    /// Takes samples again after [`Profiler::pause`].
    ///
    /// # Errors
    /// When no timer can be had any more, and in a forked child.
    pub fn resume(&self) -> Result<(), Error> {
        self.own("Profiler::resume")?.map_or(Ok(()), Running::resume)
    }

    /// Goes on at another rate, in samples per second of CPU time and thread, 1 to 10,000. What was sampled until now
    /// leaves as a profile of its own, for a profile has one period.
    ///
    /// # Errors
    /// For a rate that cannot be, and where it asks for another engine (see [`EngineChoice`](crate::EngineChoice)), of which
    /// none can be had any more; in a forked child.
    pub fn set_rate_hz(&self, rate_hz: u32) -> Result<(), Error> {
        const HERE: &str = "Profiler::set_rate_hz";
        let rate_hz = config::checked_rate(HERE, rate_hz)?;
        self.own(HERE)?.map_or(Ok(()), |running| running.set_rate_hz(rate_hz))
    }

    /// Goes on with another interval between samples of the heap, in bytes: a power of two, 1 to 1 TiB. jemalloc forgets what
    /// it counted for profiles of its own (`prof.reset`). Where these are all that there is (before 5.3.1), they are sent first, which takes as long as
    /// a profile does.
    ///
    /// A thread's next sample comes where jemalloc drew it, by the interval that was in force then: after a long interval, threads that lived in it have none for about as
    /// much as that one says, whatever is set now.
    ///
    /// # Errors
    /// For an interval that cannot be, and where that profile is not made in time; where jemalloc takes samples for others, too, whose profile it would
    /// forget; in a forked child.
    pub fn set_heap_interval(&self, bytes: u64) -> Result<(), Error> {
        const HERE: &str = "Profiler::set_heap_interval";
        let lg_interval = config::checked_heap_interval(HERE, bytes)?;
        self.own(HERE)?.map_or(Ok(()), |running| running.set_heap_interval(lg_interval))
    }

    /// One consistent snapshot of what the profiler did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.running().map(Running::stats).unwrap_or_default()
    }

    /// Has `meter` observe what [`Profiler::stats`] says, as metrics of OpenTelemetry: what was taken, sent, and lost by cause;
    /// `docs/export.md` lists them. Once for a meter provider; one that is set as global afterwards is another one. The figures of one
    /// collection are of one snapshot. When the profiler has ended, nothing is observed.
    #[cfg(feature = "opentelemetry-metrics")]
    pub fn observe(&self, meter: &opentelemetry::metrics::Meter) {
        if let Some(running) = self.running() {
            crate::metrics::observe(meter, running.watch());
        }
    }

    /// Samples for `duration` from now on, beside what is exported, and returns the profile. Blocks for as long.
    ///
    /// # Errors
    /// When sampling is off, too many captures run, or the program has closed the descriptors of the profiler; in a forked child.
    pub fn capture(&self, kind: ProfileKind, duration: Duration) -> Result<ProfileSet, Error> {
        const HERE: &str = "Profiler::capture";
        let off = || Error::misuse(HERE, "the profiler is turned off", "start it without PROFILER_ENABLED=0");
        let (running, duration) = (self.own(HERE)?.ok_or_else(off)?, duration.min(LONGEST));
        match kind {
            ProfileKind::Cpu => running.capture(duration),
            ProfileKind::Heap => running.capture_heap(duration),
        }
    }

    /// Where the page is served, with the port that was taken for port 0.
    #[must_use]
    pub fn serve_address(&self) -> Option<SocketAddr> {
        self.running().and_then(Running::serve_address)
    }

    /// A forked child inherits the guard, but no thread: there it does nothing.
    fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| !running.is_inherited())
    }

    /// What runs, if anything does, for a call that would be in vain in a forked child.
    fn own(&self, what: &'static str) -> Result<Option<&Running>, Error> {
        let inherited =
            || Error::misuse(what, "this is a forked child, in which nothing runs", "start a profiler here");
        match &self.running {
            Some(running) if running.is_inherited() => Err(inherited()),
            running => Ok(running.as_ref()),
        }
    }

    fn end(&mut self, timeout: Duration) -> bool {
        self.running.take().is_none_or(|running| running.stop(timeout.min(LONGEST)))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.end(DROP_TIMEOUT);
    }
}
