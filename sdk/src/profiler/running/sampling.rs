//! The `profiler` thread: drains the ring, keeps timers and modules, cuts time into windows.
//!
//! In: records of the handlers, [`Command`]s of the guard and the server. Out: windows for the `profiler-io` thread, one
//! per interval and one per capture; entries in the ledger. Never waits for anything but its next turn.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use profiler_proto::loss::{Cause, Degraded, Loss};

use super::io::Tasks;
use super::message::{AFTER_CLOSED, CLOSED, CaptureReply, Command, Refusal, Reply, Task};
use super::source::Handle;
use crate::aggregate::Aggregate;
use crate::config::period;
use crate::cpu::{Epoch, Sampler};
use crate::error::Error;
use crate::heap::Heap;
use crate::publish::Publication;

/// How often the ring is drained; see `ring::DEFAULT_WORDS`.
const TURN: Duration = Duration::from_millis(100);
/// The same where threads neither come nor go, and fill the ring no faster than at this period: each turn is a wake-up that the host pays for.
const CALM_TURN: Duration = Duration::from_millis(250);
const CALM_PERIOD: Duration = Duration::from_millis(4);
/// Stacks of a turn below which there is room in the ring for a longer one: ten times as many of a hundred words would fill it.
const CALM_STACKS: u64 = 500;
/// When a handler was still running, so that the epoch could not be closed: the next try.
const RETRY: Duration = Duration::from_millis(1);
/// Closed epochs after which everything that was sampled before the first is in: its close may have begun earlier.
const EPOCHS: u32 = 2;
/// Captures that may run at once, each with a window of its own.
const MAX_CAPTURES: usize = 8;

struct Capture {
    window: Aggregate,
    until: Instant,
    reply: CaptureReply,
}

/// Somebody waits until everything sampled before has been sent.
struct Flush {
    /// Epochs that must be closed before all that was sampled until then is in the window.
    epochs: u32,
    deadline: Instant,
    reply: Reply<bool>,
}

/// The thread's state.
pub(super) struct Sampling {
    sampler: Sampler,
    period: Duration,
    interval: Duration,
    mailbox: Receiver<Command>,
    tasks: Tasks,
    handle: Handle,
    publication: Publication,
    window: Aggregate,
    captures: Vec<Capture>,
    flushes: Vec<Flush>,
    /// Stacks that came with the last turn.
    drained: u64,
    paused: bool,
    /// The host has closed our descriptors: nothing leaves any more.
    stranded: bool,
    /// When the heap's profile is due.
    heap_due: Instant,
}

impl Sampling {
    pub(super) fn new(
        sampler: Sampler,
        period: Duration,
        interval: Duration,
        mailbox: Receiver<Command>,
        tasks: Tasks,
        handle: Handle,
        publication: Publication,
    ) -> Self {
        let window = Aggregate::begin(Instant::now(), SystemTime::now());
        let mut this = Self {
            sampler,
            period,
            interval,
            mailbox,
            tasks,
            handle,
            publication,
            window,
            captures: Vec::new(),
            flushes: Vec::new(),
            drained: 0,
            paused: false,
            stranded: false,
            heap_due: Instant::now() + interval,
        };
        this.publish_engine();
        this
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        let mut wait = TURN;
        loop {
            match self.mailbox.recv_timeout(wait) {
                Ok(Command::Stop { deadline, reply }) => return self.stop(deadline, reply),
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            wait = self.turn();
        }
    }

    /// One turn; how long to wait until the next.
    fn turn(&mut self) -> Duration {
        let now = Instant::now();
        self.strand_if_gone();
        let is_someone_new = self.sampler.tick(now);
        self.publish_engine();
        self.look_after_heap(now);
        let closed = self.collect();
        if closed && self.window.is_due(now, self.interval) {
            self.hand_over();
        }
        if closed {
            self.flushes.iter_mut().for_each(|flush| flush.epochs = flush.epochs.saturating_sub(1));
            self.flush(now);
        }
        self.end_captures(now, closed);
        if !closed {
            return RETRY;
        }
        let next_capture = self.captures.iter().map(|capture| capture.until.saturating_duration_since(now)).min();
        let turn = self.next_turn(is_someone_new);
        next_capture.map_or(turn, |next| next.clamp(RETRY, turn))
    }

    fn next_turn(&self, is_someone_new: bool) -> Duration {
        let is_calm =
            !is_someone_new && self.drained < CALM_STACKS && self.period >= CALM_PERIOD && self.flushes.is_empty();
        if is_calm { CALM_TURN.min(self.interval) } else { TURN }
    }

    /// Has the heap's profile sent when it is due, or another interval set.
    fn look_after_heap(&mut self, now: Instant) {
        let Some(heap) = self.handle.heap() else { return };
        heap.tick();
        match heap.choose_interval(now).filter(|_| !self.stranded) {
            // Behind a profile of what was sampled until then.
            Some(lg_interval) => {
                if self.set_heap_interval(lg_interval, Reply::new().0) {
                    let bytes = 1_u64 << lg_interval;
                    tracing::info!(
                        bytes,
                        "the heap is to be sampled at another interval, by how much the program allocates"
                    );
                } else {
                    self.handle.heap().into_iter().for_each(Heap::leave_choice);
                }
            }
            None if now >= self.heap_due => _ = self.send_heap(),
            None => {}
        }
    }

    /// Has what is known of the heap sent. Where the `profiler-io` thread is behind, it is later; `false` then.
    fn send_heap(&mut self) -> bool {
        if self.handle.heap().is_none() {
            return false;
        }
        self.handle.heap_profile_is_due();
        let is_sent = self.tasks.try_send(Task::ExportHeap).is_ok();
        if !is_sent {
            // If it has been given up, so has what it stood for.
            self.handle.heap_profile_is_made();
        } else {
            self.heap_due = Instant::now() + self.interval;
        }
        is_sent
    }

    /// Takes in one epoch; `false` where a handler that began in it still runs.
    fn collect(&mut self) -> bool {
        let Self { sampler, window, captures, .. } = self;
        let (mut weight, mut refused, mut degraded) = (0, 0, Degraded::default());
        let epoch = sampler.drain(|sample| {
            weight += u64::from(sample.head.weight);
            match window.add(sample) {
                Ok(flaws) => degraded.merge(&flaws),
                Err(_) => refused += 1,
            }
            for capture in captures.iter_mut() {
                // One that is full lacks it and says so in its profile. The account is the window's.
                drop(capture.window.add(sample));
            }
        });
        let Some(Epoch { taken, drained, lost }) = epoch else { return false };
        let ledger = &self.handle.ledger;
        ledger.enter(taken, drained, weight, &lost, &degraded);
        self.drained = drained;
        self.window.lose(&lost);
        self.captures.iter_mut().for_each(|capture| capture.window.lose(&lost));
        if refused > 0 {
            ledger.lost(refused, Cause::AggregateFull);
        }
        true
    }

    /// Closes the epoch that is open now, so that all that happened until now is taken in. Nearly always at once; where a
    /// handler does not end, it gives up at `until`, says so, and what is left is taken in by a later turn.
    fn collect_all(&mut self, until: Instant) -> bool {
        (0..EPOCHS).all(|_| {
            let mut closed = self.collect();
            while !closed && Instant::now() < until {
                std::thread::sleep(RETRY);
                closed = self.collect();
            }
            closed
        })
    }

    /// Sends the window on its way. Where the `profiler-io` thread is behind, the window goes on instead, and leaves later;
    /// `false` then.
    fn hand_over(&mut self) -> bool {
        if !self.tasks.has_room() {
            return false;
        }
        let window = Box::new(self.window.end(Instant::now(), SystemTime::now(), self.period));
        let stacks = window.stacks();
        if stacks == 0 {
            // OTLP forbids empty profiles: what was lost travels with the next one.
            self.window.lose(&window.lost);
            return true;
        }
        if let Err(Task::Export { window }) = self.tasks.try_send(Task::Export { window }) {
            self.handle.ledger.lost(stacks, Cause::Failed);
            // The next profile tells of it, and of what this one would have told.
            self.window.lose(&window.lost);
            self.window.lose(&loss(Cause::Failed, stacks));
        }
        true
    }

    fn end_captures(&mut self, now: Instant, closed: bool) {
        self.captures.retain(|capture| capture.reply.is_awaited());
        let room = |tasks: &Tasks| closed && tasks.has_room();
        while let Some(index) = self.captures.iter().position(|capture| capture.until <= now && room(&self.tasks)) {
            let mut capture = self.captures.swap_remove(index);
            let window = Box::new(capture.window.end(now, SystemTime::now(), self.period));
            self.tasks.try_send(Task::Capture { window, reply: capture.reply }).unwrap_or_else(Task::refuse);
        }
    }

    /// Hands over what was sampled before the flushes that wait for it, and lets them follow it.
    fn flush(&mut self, now: Instant) {
        let is_ready = |flush: &Flush| flush.epochs == 0 || now >= flush.deadline;
        if !self.flushes.iter().any(is_ready) || !self.hand_over() {
            return;
        }
        self.send_heap();
        for Flush { epochs, deadline, reply } in std::mem::take(&mut self.flushes) {
            if epochs > 0 || !self.tasks.has_room() {
                if now < deadline {
                    self.flushes.push(Flush { epochs, deadline, reply });
                } else {
                    reply.answer(false);
                }
            } else {
                self.tasks.try_send(Task::Flush { deadline, reply }).unwrap_or_else(Task::refuse);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        self.strand_if_gone();
        match command {
            Command::Capture { reply, .. } | Command::Heap { reply, .. } if self.stranded => {
                reply.answer(Err(Refusal::Closed));
            }
            Command::Capture { duration, reply } => self.begin_capture(duration, reply),
            Command::Flush { deadline, reply } => self.begin_flush(deadline, reply),
            Command::Pause { reply } => {
                self.pause();
                reply.answer(());
            }
            Command::Resume { reply } => reply.answer(self.resume()),
            Command::SetRate { rate_hz, reply } => reply.answer(self.set_rate(rate_hz)),
            Command::Heap { reply, .. } if self.handle.heap().is_none() => reply.answer(Err(Refusal::NoHeap)),
            Command::Heap { asked, reply } => {
                self.tasks.try_send(Task::Heap { asked, reply }).unwrap_or_else(Task::refuse);
            }
            Command::SetHeapInterval { lg_interval, reply } => {
                if self.set_heap_interval(lg_interval, reply) {
                    self.handle.heap().into_iter().for_each(Heap::leave_interval);
                }
            }
            // `run` takes it before it comes here.
            Command::Stop { reply, .. } => reply.answer(false),
        }
    }

    fn begin_capture(&mut self, duration: Duration, reply: CaptureReply) {
        if self.paused {
            return reply.answer(Err(Refusal::Off));
        }
        if self.captures.len() >= MAX_CAPTURES {
            return reply.answer(Err(Refusal::TooMany));
        }
        // What was taken before does not belong to it.
        self.collect_all(soon());
        let now = Instant::now();
        let window = Aggregate::begin(now, SystemTime::now());
        self.captures.push(Capture { window, until: now + duration, reply });
    }

    fn begin_flush(&mut self, deadline: Instant, reply: Reply<bool>) {
        if self.stranded {
            // All that was sampled has been given up.
            return reply.answer(false);
        }
        let epochs = if self.collect_all(soon()) { 0 } else { EPOCHS };
        self.flushes.push(Flush { epochs, deadline, reply });
        self.flush(Instant::now());
    }

    fn pause(&mut self) {
        // While the names and clocks of threads are at hand.
        self.collect_all(soon());
        self.sampler.pause();
        self.handle.heap().into_iter().for_each(Heap::pause);
        self.paused = true;
        self.collect_all(soon());
        self.publish_engine();
    }

    fn resume(&mut self) -> Result<(), Error> {
        if self.stranded {
            return Err(Error::misuse("Profiler::resume", CLOSED, AFTER_CLOSED));
        }
        let resumed = self.sampler.resume(self.period);
        self.handle.heap().into_iter().for_each(Heap::resume);
        self.paused = resumed.is_err();
        self.publish_engine();
        resumed
    }

    fn set_rate(&mut self, rate_hz: u32) -> Result<(), Error> {
        if self.stranded {
            return Err(Error::misuse("Profiler::set_rate_hz", CLOSED, "shut this profiler down, start another one"));
        }
        self.collect_all(soon());
        self.hand_over();
        self.period = period(rate_hz);
        let set = self.sampler.set_period(self.period);
        self.paused = self.paused || set.is_err();
        self.handle.rate_hz.store(rate_hz, Ordering::Relaxed);
        set
    }

    /// What was sampled until now leaves with the interval that it was sampled with. Whether another one is under way.
    fn set_heap_interval(&mut self, lg_interval: u32, reply: Reply<Result<(), Error>>) -> bool {
        if self.stranded {
            reply.answer(Err(Error::misuse("Profiler::set_heap_interval", CLOSED, AFTER_CLOSED)));
            return false;
        }
        if self.handle.heap().is_none() {
            reply.answer(Ok(()));
            return false;
        }
        // By the thread that makes the profile, behind it.
        let is_sent = self.send_heap();
        let task = Task::SetHeapInterval { lg_interval, reply };
        let taken = if is_sent { self.tasks.try_send(task) } else { Err(task) };
        let is_taken = taken.is_ok();
        taken.unwrap_or_else(Task::refuse);
        is_taken
    }

    fn stop(mut self, deadline: Instant, reply: Reply<bool>) {
        self.strand_if_gone();
        if self.stranded {
            return reply.answer(false);
        }
        self.collect_all(soon());
        self.sampler.stop();
        self.handle.heap().into_iter().for_each(Heap::pause);
        self.collect_all(deadline.max(soon()));
        self.publish_engine();
        let mut handed_over = self.hand_over();
        while !(handed_over && self.tasks.has_room()) && Instant::now() < deadline {
            std::thread::sleep(RETRY);
            handed_over = handed_over || self.hand_over();
        }
        if !self.send_heap() && self.handle.heap().is_some() {
            self.handle.heap_profile_is_due();
            self.handle.give_up_heap_profiles(Cause::Shutdown);
        }
        let left = self.window.stacks();
        self.handle.ledger.lost(left, Cause::Shutdown);
        for Flush { reply, .. } in self.flushes.drain(..) {
            reply.answer(false);
        }
        for capture in self.captures.drain(..) {
            capture.reply.answer(Err(Refusal::Off));
        }
        self.tasks.try_send(Task::Stop { deadline, reply }).unwrap_or_else(Task::refuse);
    }

    /// Ends sampling where the host has closed our descriptors, for nothing can leave any more, and writes off what was on
    /// its way. The `profiler-io` thread cannot be asked: waking it writes to a descriptor.
    fn strand_if_gone(&mut self) {
        if self.stranded || !self.handle.mark.is_gone() {
            return;
        }
        self.stranded = true;
        tracing::error!("{CLOSED}: profiling ends here; {AFTER_CLOSED}");
        self.pause();
        if let Some(exporter) = self.handle.exporter.get() {
            exporter.abandon(Cause::Closed);
        }
        self.handle.ledger.abandon(Cause::Closed);
        if self.handle.heap().is_some() {
            self.handle.heap_profile_is_due();
            self.handle.give_up_heap_profiles(Cause::Closed);
        }
        for Flush { reply, .. } in self.flushes.drain(..) {
            reply.answer(false);
        }
        for capture in self.captures.drain(..) {
            capture.reply.answer(Err(Refusal::Closed));
        }
    }

    /// Tells the rest of the process, and readers outside, how samples are taken now.
    fn publish_engine(&mut self) {
        let mut now = self.sampler.engine();
        self.publication.say(!now.name.is_empty());
        now.notes.extend_from_slice(self.publication.notes());
        now.notes.extend(self.stranded.then(|| CLOSED.to_owned()));
        let engine = || self.handle.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = *engine() == now;
        if is_same {
            return;
        }
        let name = now.name.clone();
        let before = std::mem::replace(&mut *engine(), now);
        // Without the lock, for the log is the host's code.
        if before.name != name && !name.is_empty() {
            tracing::info!(engine = name, "samples are taken by this engine");
        }
    }
}

impl Drop for Sampling {
    /// Also where the thread could not be made, or has panicked: nobody would read what the heap's hooks go on to take.
    fn drop(&mut self) {
        self.handle.heap().into_iter().for_each(Heap::pause);
        if std::thread::panicking() {
            let note = "the thread `profiler` has panicked: nothing is sampled until the next start; the panic's own message says where".to_owned();
            let engine = crate::stats::EngineStats { notes: vec![note], ..Default::default() };
            *self.handle.engine.lock().unwrap_or_else(PoisonError::into_inner) = engine;
        }
    }
}

/// How long a turn may wait for a handler that was interrupted itself.
fn soon() -> Instant {
    Instant::now() + Duration::from_millis(8)
}

fn loss(cause: Cause, stacks: u64) -> Loss {
    let mut loss = Loss::default();
    loss.add(cause, stacks);
    loss
}
