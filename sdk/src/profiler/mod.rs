//! The guard that a user holds, and how the stages are wired.
//!
//! In: settings. Out: two threads, `profiler` ([`sampling`]) and `profiler-io` ([`io`]), that run until the guard goes.
//! Calls on the guard become [`Command`]s to the first of them; nothing here blocks longer than the caller allows.

mod io;
mod message;
mod sampling;
mod source;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;

use self::message::{Command, Refusal, Reply};
use self::sampling::Sampling;
use self::source::Handle;
use crate::config::{self, Config, Settings};
use crate::cpu::Sampler;
use crate::error::Error;
use crate::stats::Stats;

/// How long dropping the guard may take.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that anything waits or captures, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The process that a profiler runs in; 0: none.
static RUNNING_IN: AtomicU32 = AtomicU32::new(0);

/// Keeps the profiler running; sampling stops, and what was sampled leaves, when it is dropped.
///
/// Bind it to a name in `main` (`let _profiler = …`); `let _ = …` would drop it at once.
#[derive(Debug)]
#[must_use = "profiling ends when this guard is dropped; bind it to a name such as `_profiler`"]
pub struct Profiler {
    /// `None`: turned off by `PROFILER_ENABLED=0`, or ended.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    serve_address: Option<SocketAddr>,
    /// A forked child inherits the guard but no thread: there it does nothing.
    pid: u32,
}

/// What a capture measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProfileKind {
    /// CPU time, by samples.
    #[default]
    Cpu,
}

/// Starts profiling this process: `profiler::start("checkout")`, or with a [`Config`]. Takes less than 10 ms.
///
/// # Errors
/// A setting that cannot be, a profiler that runs already, an address that cannot be bound, no timer to be had. The
/// process then goes on without a profiler.
pub fn start(config: impl Into<Config>) -> Result<Profiler, Error> {
    let lookup = |name: &str| std::env::var_os(name);
    // First of all, so that it also turns off what cannot be set up.
    if !config::enabled(&lookup)? {
        tracing::info!("turned off by PROFILER_ENABLED");
        return Ok(Profiler { running: None });
    }
    let settings = config.into().resolve(&lookup)?;
    let running = wire(settings, Claim::take()?)?;
    Ok(Profiler { running: Some(running) })
}

/// The right to be the one profiler of this process; given back when dropped, by the `profiler` thread as its last deed:
/// two samplers must never share the ring.
#[derive(Debug)]
struct Claim;

impl Claim {
    fn take() -> Result<Self, Error> {
        let pid = std::process::id();
        // A forked child finds its parent's id here and may start a profiler of its own.
        let claimed =
            RUNNING_IN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |running| (running != pid).then_some(pid));
        claimed.map(|_| Self).map_err(|_| {
            let remedy =
                "keep the guard of the first start, or shut it down, and give it the time to end, before the next";
            Error::misuse("profiler::start", "a profiler runs in this process already", remedy)
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        RUNNING_IN.store(0, Ordering::Relaxed);
    }
}

/// Makes the stages and starts their threads, the receiving end first.
fn wire(settings: Settings, claim: Claim) -> Result<Running, Error> {
    #[cfg(feature = "serve")]
    let server = settings.serve.as_deref().map(crate::serve::Server::bind).transpose()?;
    #[cfg(feature = "serve")]
    let serve_address = server.as_ref().map(crate::serve::Bound::local_addr);
    #[cfg(not(feature = "serve"))]
    let serve_address = {
        if let Some(address) = &settings.serve {
            tracing::warn!(address, "not served: the crate was built without its feature `serve`");
        }
        None
    };
    let (period, interval) = (settings.period(), settings.interval);
    let (engine, ring_words) = (settings.engine, settings.ring_words);
    let (commands, mailbox) = mpsc::channel();
    let handle = Handle::new(commands, &settings);
    let (tasks, inbox) = io::channel();
    let io_thread = io::Io {
        #[cfg(feature = "serve")]
        server,
        destinations: settings.destinations,
        resource: settings.resource,
        folders: settings.folders,
        handle: handle.clone(),
    };
    let runtime = io::runtime()?;
    let mut threads = vec![spawn("profiler-io", move || io_thread.run(runtime, inbox))?];
    let sampler = Sampler::start(engine, period, ring_words)?;
    let sampling = Sampling::new(sampler, period, interval, mailbox, tasks, handle.clone());
    threads.push(spawn("profiler", move || {
        sampling.run();
        drop(claim);
    })?);
    tracing::info!(service = settings.service, rate_hz = settings.rate_hz, "profiling");
    Ok(Running { handle, threads, serve_address, pid: std::process::id() })
}

/// Starts a thread that gets no signal but SIGPROF: the host's handlers never run on it.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let mask = SignalMask::only_sigprof();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    drop(mask);
    thread.map_err(|error| {
        Error::environment(format!("spawn the thread {name}"), error, "raise the limit of threads (RLIMIT_NPROC)")
    })
}

/// The calling thread's signal mask while another thread is made, which inherits it; restored when dropped.
struct SignalMask {
    old: libc::sigset_t,
}

impl SignalMask {
    fn only_sigprof() -> Self {
        // SAFETY: sigset_t is plain data; sigfillset(3) and sigdelset(3) write to it, pthread_sigmask(3) reads one and
        //         writes the other. Both are valid for the calls, which cannot fail with these arguments.
        unsafe {
            let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::sigdelset(&raw mut all, libc::SIGPROF);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
            Self { old }
        }
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: pthread_sigmask(3) reads the mask that it returned before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.old, std::ptr::null_mut()) };
    }
}

impl Profiler {
    /// Sends what was sampled until now; `true` once all of it arrived or was given up, `false` when the time was over.
    pub fn flush(&self, timeout: Duration) -> bool {
        let Some(running) = self.running() else { return true };
        let timeout = timeout.min(LONGEST);
        running.ask(timeout, |reply| Command::Flush { deadline: Instant::now() + timeout, reply }).unwrap_or(false)
    }

    /// Stops sampling, sends what is left, ends both threads. `false` when the time was over: what was not sent by then
    /// is lost, and counted so in the log.
    pub fn shutdown(mut self, timeout: Duration) -> bool {
        self.end(timeout)
    }

    /// Stops taking samples until [`Profiler::resume`]. The timers are gone meanwhile.
    pub fn pause(&self) {
        if let Some(running) = self.running() {
            running.ask(DROP_TIMEOUT, |reply| Command::Pause { reply });
        }
    }

    /// Takes samples again after [`Profiler::pause`].
    ///
    /// # Errors
    /// When no timer can be had any more.
    pub fn resume(&self) -> Result<(), Error> {
        let Some(running) = self.running() else { return Ok(()) };
        running.ask(DROP_TIMEOUT, |reply| Command::Resume { reply }).unwrap_or(Ok(()))
    }

    /// Goes on at another rate, in samples per second of CPU time and thread, 1 to 10,000. What was sampled until now
    /// leaves as a profile of its own, for a profile has one period.
    ///
    /// # Errors
    /// For a rate that cannot be.
    pub fn set_rate_hz(&self, rate_hz: u32) -> Result<(), Error> {
        let rate_hz = config::checked_rate("Profiler::set_rate_hz", rate_hz)?;
        if let Some(running) = self.running() {
            running.ask(DROP_TIMEOUT, |reply| Command::SetRate { rate_hz, reply });
        }
        Ok(())
    }

    /// One consistent snapshot of what the profiler did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.running().map(|running| running.handle.stats()).unwrap_or_default()
    }

    /// Samples for `duration` from now on, beside what is exported, and returns the profile. Blocks for as long.
    ///
    /// # Errors
    /// When sampling is off, or too many captures run.
    pub fn capture(&self, kind: ProfileKind, duration: Duration) -> Result<ProfileSet, Error> {
        let ProfileKind::Cpu = kind;
        let off = || Error::misuse("Profiler::capture", "sampling is off", "resume the profiler first");
        let running = self.running().ok_or_else(off)?;
        let duration = duration.min(LONGEST);
        let (reply, outcome) = Reply::new();
        let asker = Arc::new(());
        let reply = Box::new(|captured| reply.answer(captured));
        running.handle.send(Command::Capture { duration, asker: Arc::downgrade(&asker), reply });
        match outcome.recv_timeout(duration + DROP_TIMEOUT) {
            Ok(Ok(set)) => Ok(set),
            Ok(Err(Refusal::TooMany)) => {
                let remedy = "wait until one of them has ended";
                Err(Error::misuse("Profiler::capture", "too many captures at once", remedy))
            }
            Ok(Err(Refusal::Off)) | Err(_) => Err(off()),
        }
    }

    /// Where the page is served, with the port that was taken for port 0.
    #[must_use]
    pub fn serve_address(&self) -> Option<SocketAddr> {
        self.running.as_ref().and_then(|running| running.serve_address)
    }

    fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.pid == std::process::id())
    }

    fn end(&mut self, timeout: Duration) -> bool {
        let Some(running) = self.running.take() else { return true };
        if running.pid != std::process::id() {
            // A forked child: the threads are the parent's, and joining them would wait for ever.
            std::mem::forget(running);
            return true;
        }
        let timeout = timeout.min(LONGEST);
        let deadline = Instant::now() + timeout;
        let done = running.ask(timeout, |reply| Command::Stop { deadline, reply }).unwrap_or(false);
        let account = running.handle.stats().account;
        if !done {
            tracing::warn!(account.pending, "the time to shut down was over before all samples were sent");
        }
        if account.lost.total() > 0 {
            tracing::warn!(lost = ?account.lost, "samples were lost");
        }
        if done {
            for thread in running.threads {
                // A thread that panicked has no more to say than that.
                drop(thread.join());
            }
        }
        done
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.end(DROP_TIMEOUT);
    }
}

impl Running {
    /// Sends a command and waits for its answer; `None` when the time is over or the thread is gone.
    fn ask<T>(&self, timeout: Duration, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = Reply::new();
        self.handle.send(command(reply));
        // A little longer than the command itself may take, so that its own answer comes first.
        answer.recv_timeout(timeout + Duration::from_millis(50)).ok()
    }
}
