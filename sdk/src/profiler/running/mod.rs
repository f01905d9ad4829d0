//! A profiler that runs: how the stages are wired.
//!
//! In: settings. Out: two threads, `profiler` ([`sampling`]) and `profiler-io` ([`io`]), that run until they are told to stop.
//! Calls of the guard become [`Command`]s to the first of them; nothing here blocks longer than the caller allows.

mod io;
mod mark;
mod message;
mod sampling;
mod source;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::loss::Cause;

use self::mark::Mark;
use self::message::{CaptureReply, Command, HeapAsked, Refusal, Reply};
use self::sampling::Sampling;
use self::source::Handle;
use crate::config::Settings;
use crate::context::spans;
use crate::cpu::{Sampler, ring};
use crate::error::Error;
use crate::fork;
use crate::heap::Heap;
use crate::publish::Publication;
use crate::stats::Stats;
use crate::symbolize::Folders;

/// How long a call may take, beyond the time that it asks for: with thousands of threads, or where the first profile has names from all
/// over a program.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much longer than a command may take is waited for what comes of it.
const GRACE: Duration = Duration::from_millis(50);

/// The process that a profiler runs in, as [`fork::this_process`] says it; 0: none.
static RUNNING_IN: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(super) struct Running {
    handle: Arc<Handle>,
    sampling: JoinHandle<()>,
    io: JoinHandle<()>,
    serve_address: Option<SocketAddr>,
    /// The process that has the threads, as [`fork::this_process`] says it.
    process: u64,
}

impl Running {
    /// Starts it.
    pub(super) fn start(settings: Settings) -> Result<Self, Error> {
        let claim = Claim::take()?;
        // Taken back with the claim, also where the start fails.
        spans::ask(Some(settings.spans));
        let running = wire(settings, claim)?;
        #[cfg(feature = "opentelemetry")]
        crate::context::otel::observe();
        Ok(running)
    }

    /// Whether this is a forked child, which has the value and not the threads.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != fork::this_process()
    }

    pub(super) fn flush(&self, timeout: Duration) -> bool {
        self.ask(timeout, |reply| Command::Flush { deadline: Instant::now() + timeout, reply }).unwrap_or(false)
    }

    pub(super) fn pause(&self) {
        self.ask(PATIENCE, |reply| Command::Pause { reply });
    }

    pub(super) fn resume(&self) -> Result<(), Error> {
        self.obeyed("Profiler::resume", PATIENCE, |reply| Command::Resume { reply })
    }

    pub(super) fn set_rate_hz(&self, rate_hz: u32) -> Result<(), Error> {
        self.obeyed("Profiler::set_rate_hz", PATIENCE, |reply| Command::SetRate { rate_hz, reply })
    }

    pub(super) fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Figures for whoever may outlive this: none then, nor in a forked child.
    #[cfg(feature = "opentelemetry-metrics")]
    pub(super) fn watch(&self) -> crate::metrics::Watch {
        let (handle, process) = (Arc::downgrade(&self.handle), self.process);
        Box::new(move || handle.upgrade().filter(|_| process == fork::this_process()).map(|handle| handle.stats()))
    }

    pub(super) fn serve_address(&self) -> Option<SocketAddr> {
        self.serve_address
    }

    pub(super) fn set_heap_interval(&self, lg_interval: u32) -> Result<(), Error> {
        // Where jemalloc forgets with it what it counted, a profile of that is made before.
        let command = |reply| Command::SetHeapInterval { lg_interval, reply };
        self.obeyed("Profiler::set_heap_interval", PATIENCE, command)
    }

    pub(super) fn capture(&self, duration: Duration) -> Result<ProfileSet, Error> {
        self.captured(duration + PATIENCE, |reply| Command::Capture { duration, reply })
    }

    /// The heap: what is allocated within `duration` from now on, and what lives then.
    pub(super) fn capture_heap(&self, duration: Duration) -> Result<ProfileSet, Error> {
        let asked = match self.handle.heap() {
            Some(heap) if !duration.is_zero() => Box::new(HeapAsked::from(heap.mark())),
            _ => Box::new(HeapAsked::in_all(None)),
        };
        std::thread::sleep(duration);
        self.captured(PATIENCE, |reply| Command::Heap { asked, reply })
    }

    fn captured(&self, patience: Duration, command: impl FnOnce(CaptureReply) -> Command) -> Result<ProfileSet, Error> {
        let (reply, outcome) = Reply::new();
        let asker = Arc::new(());
        self.handle.send(command(CaptureReply::new(&asker, |captured| reply.answer(captured))));
        let (why, remedy) = match outcome.recv_timeout(patience) {
            Ok(Ok(set)) => return Ok(set),
            Ok(Err(Refusal::TooMany)) => {
                ("too many captures at once, or other profiles wait to be made", "ask again in a moment")
            }
            Ok(Err(Refusal::Off)) => ("sampling is off", "resume the profiler first"),
            Ok(Err(Refusal::Closed)) => (message::CLOSED, message::AFTER_CLOSED),
            Ok(Err(Refusal::NoHeap)) => ("there are no heap profiles", "see the notes in Stats::heap"),
            Err(RecvTimeoutError::Timeout) => {
                let why = std::io::Error::new(std::io::ErrorKind::TimedOut, "names took too long to find");
                return Err(Error::environment("Profiler::capture", why, "ask again: what was found is kept"));
            }
            Err(RecvTimeoutError::Disconnected) => ("the profiler has ended", "start it again"),
        };
        Err(Error::misuse("Profiler::capture", why, remedy))
    }

    /// Ends it; `false` when the time was over.
    pub(super) fn stop(self, timeout: Duration) -> bool {
        if self.is_inherited() {
            // The threads are the parent's, and joining them would wait for ever.
            std::mem::forget(self);
            return true;
        }
        let deadline = Instant::now() + timeout;
        let answer = self.ask(timeout, |reply| Command::Stop { deadline, reply });
        let done = answer.unwrap_or(false);
        let account = self.handle.stats().account;
        if !done {
            self.handle.give_up_heap_profiles(Cause::Shutdown);
            if account.pending > 0 {
                tracing::warn!(account.pending, "the time to shut down was over before all samples were sent");
            }
        }
        if account.lost.total() > 0 {
            tracing::warn!(lost = ?account.lost, "samples were lost");
        }
        if answer.is_some() {
            // Whatever the answer, `profiler` waits for nothing behind it, and gives the right to start another one back as it
            // ends. A thread that panicked has no more to say than that.
            drop(self.sampling.join());
        }
        if done {
            end(self.io, &self.handle.mark, deadline.max(Instant::now() + GRACE));
        }
        done
    }

    /// Whether a command was obeyed; that nobody answered is an error, too, for it may or may not be obeyed later.
    fn obeyed(
        &self,
        what: &'static str,
        patience: Duration,
        command: impl FnOnce(Reply<Result<(), Error>>) -> Command,
    ) -> Result<(), Error> {
        let no_answer = || {
            let remedy = "ask again; where a library is being loaded for seconds, wait until it is";
            Err(Error::environment(what, std::io::Error::from(std::io::ErrorKind::TimedOut), remedy))
        };
        self.ask(patience, command).unwrap_or_else(no_answer)
    }

    /// Sends a command and waits for its answer; `None` when the time is over or the thread is gone.
    fn ask<T>(&self, timeout: Duration, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = Reply::new();
        self.handle.send(command(reply));
        // A little longer than the command itself may take, so that its own answer comes first.
        answer.recv_timeout(timeout + GRACE).ok()
    }
}

/// Waits for the end of `profiler-io`, which has given its last answer, but not beyond `until`, and not where the host has closed
/// its descriptors, be it just now: then it never ends.
fn end(io: JoinHandle<()>, mark: &Mark, until: Instant) {
    while !io.is_finished() {
        if mark.is_gone() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that panicked has no more to say than that.
    drop(io.join());
}

/// The right to be the one profiler of this process; given back when dropped, by the `profiler` thread as its last deed:
/// two samplers must never share the ring.
#[derive(Debug)]
struct Claim;

impl Claim {
    fn take() -> Result<Self, Error> {
        fork::watch();
        let process = fork::this_process();
        // A forked child finds its parent here and may start a profiler of its own.
        let claim = |running| (running != process).then_some(process);
        let claimed = RUNNING_IN.fetch_update(Ordering::Acquire, Ordering::Relaxed, claim);
        claimed.map(|_| Self).map_err(|_| {
            let remedy =
                "keep the guard of the first start, or shut it down, and give it the time to end, before the next";
            Error::misuse("profiler::start", "a profiler runs in this process already", remedy)
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        spans::ask(None);
        // Release: pairs with the Acquire in `take`; what the next profiler asks of spans comes behind this one's end.
        RUNNING_IN.store(0, Ordering::Release);
    }
}

/// Takes the address that profiles are to be served on.
#[cfg(feature = "serve")]
fn serve((setting, address): &(&str, String), security: &crate::serve::Security) -> Result<crate::serve::Bound, Error> {
    crate::serve::Server::bind_by(setting, address)?.secured(security)
}

/// Makes the stages and starts their threads, the receiving end first.
fn wire(settings: Settings, claim: Claim) -> Result<Running, Error> {
    let mark = Mark::set().map(Arc::new).map_err(io::no_descriptor("open a pipe"))?;
    #[cfg(feature = "serve")]
    let server = settings.serve.as_ref().map(|address| serve(address, &settings.security)).transpose()?;
    #[cfg(feature = "serve")]
    let serve_address = server.as_ref().map(crate::serve::Bound::local_addr);
    #[cfg(not(feature = "serve"))]
    let serve_address = {
        if let Some((_, address)) = &settings.serve {
            tracing::warn!(address, "not served: the crate was built without its feature `serve`");
        }
        None
    };
    let (period, interval) = (settings.period(), settings.interval);
    let (engine, ring_words) = (settings.engine, settings.ring_words.unwrap_or(ring::DEFAULT_WORDS));
    let (commands, mailbox) = mpsc::channel();
    let handle = Handle::new(commands, &settings, Arc::clone(&mark));
    let (tasks, inbox) = io::channel(&mark);
    let resource = settings.resource.clone();
    let io_thread = io::Io {
        #[cfg(feature = "serve")]
        server,
        #[cfg(feature = "serve")]
        serves_within: settings.serves_within,
        #[cfg(all(feature = "serve", feature = "tower"))]
        security: settings.security,
        #[cfg(all(feature = "serve", feature = "tower"))]
        opened: None,
        destinations: settings.destinations,
        limits: settings.limits,
        spool: settings.spool,
        resource: settings.resource,
        folders: settings.symbolize.then(|| Folders::new(&|name| std::env::var_os(name))),
        handle: handle.clone(),
    };
    let runtime = io::runtime(&mark)?;
    let io = spawn("profiler-io", move || io_thread.run(runtime, inbox))?;
    let sampler = Sampler::start(engine, period, ring_words)?;
    let heap = Heap::start(settings.heap, sampler.modules(), sampler.may_make_memfd())?;
    if let Err(why) = &heap {
        tracing::info!(why, "the heap is not profiled");
    }
    drop(handle.heap.set(heap));
    let publication = Publication::begin(&resource, sampler.may_make_memfd());
    let sampling = Sampling::new(sampler, period, interval, mailbox, tasks, handle.clone(), publication);
    let sampling = spawn("profiler", move || {
        sampling.run();
        drop(claim);
    })?;
    tracing::info!(service = settings.service, rate_hz = settings.rate_hz, "profiling");
    Ok(Running { handle: Arc::new(handle), sampling, io, serve_address, process: fork::this_process() })
}

/// Starts a thread that gets no signal but SIGPROF: the host's handlers never run on it. Waits until it runs: it takes
/// memory until then, and where a limit that the host sets next refuses it, the standard library ends the process.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let mask = SignalMask::only_sigprof();
    let (running, runs) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        crate::heap::leave_out_this_thread();
        let _told = running.send(());
        work();
    });
    drop(mask);
    let thread = thread.map_err(|error| {
        Error::environment(format!("spawn the thread {name}"), error, "raise the limit of threads (RLIMIT_NPROC)")
    })?;
    let _runs = runs.recv_timeout(PATIENCE);
    Ok(thread)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread that is about to end is waited for, and one that does not end is not waited for without a bound.
    #[test]
    fn nothing_waits_without_a_bound_for_a_thread_that_does_not_end() {
        let mark = Mark::set().unwrap();
        let (ended, ends) = mpsc::channel();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            ended.send(()).unwrap();
        });
        end(ending, &mark, Instant::now() + Duration::from_secs(60));
        assert_eq!(ends.try_recv(), Ok(()));
        let (release, parked) = mpsc::channel::<()>();
        let endless = std::thread::spawn(move || {
            let _released = parked.recv();
        });
        let (done, outcome) = mpsc::channel();
        std::thread::spawn(move || {
            end(endless, &mark, Instant::now() + Duration::from_millis(20));
            done.send(()).unwrap();
        });
        assert_eq!(outcome.recv_timeout(Duration::from_secs(10)), Ok(()));
        drop(release);
    }

    /// Check that whoever is told no at the end can start another profiler at once: the thread that has the right to has ended by then,
    /// however long it takes for that behind its answer.
    #[test]
    fn an_end_that_says_no_is_an_end() {
        let mark = Arc::new(Mark::set().unwrap());
        let settings = crate::config::Config::new("a").resolve(&|_| None).unwrap();
        let (commands, mailbox) = mpsc::channel();
        let handle = Arc::new(Handle::new(commands, &settings, mark));
        let (has_ended, ended) = mpsc::channel();
        let sampling = std::thread::spawn(move || {
            if let Ok(Command::Stop { reply, .. }) = mailbox.recv() {
                reply.answer(false);
            }
            // Nobody waits for this: it is what is to be waited for.
            std::thread::sleep(Duration::from_millis(100));
            has_ended.send(()).unwrap();
        });
        let io = std::thread::spawn(|| ());
        let running = Running { handle, sampling, io, serve_address: None, process: fork::this_process() };
        assert_eq!((running.stop(Duration::from_secs(60)), ended.try_recv()), (false, Ok(())));
    }
}
