//! System calls that wait, on threads that are busy in between: which of them a signal of ours ends early.
//!
//! In: the bench. Out: for each kind, how many calls there were and how many ended with EINTR. `read` and `connect` are
//! restarted under SA_RESTART; `nanosleep` and `epoll_wait` never are (signal(7)), and are counted.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::bench::{Time, torture};

/// CPU time between two waits, and how long each wait is.
const WORK: Duration = Duration::from_micros(500);
const WAIT: Duration = Duration::from_millis(1);
/// As many calls there are at least, however slow the machine is.
const LEAST: u32 = 50;

#[derive(Debug, Default)]
struct Count {
    calls: AtomicU64,
    interrupted: AtomicU64,
}

impl Count {
    fn to_json(&self) -> Value {
        json!({ "calls": self.calls.load(Ordering::Relaxed), "interrupted": self.interrupted.load(Ordering::Relaxed) })
    }

    /// Counts one outcome; anything but EINTR that is wrong is an error.
    fn add(&self, outcome: io::Result<()>) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.interrupted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

/// Waits in four ways, on a thread each.
pub(crate) fn waits(options: &Options) -> Result<Value> {
    torture(options, |time, _| {
        let counts: [Count; 4] = Default::default();
        let [sleeps, reads, connects, polls] = &counts;
        std::thread::scope(|scope| {
            let threads = [
                scope.spawn(|| repeated(time, || sleeps.add(nanosleep()))),
                scope.spawn(|| read(time, reads)),
                scope.spawn(|| connect(time, connects)),
                scope.spawn(|| epoll_wait(time, polls)),
            ];
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
        Ok(json!({
            "nanosleep": sleeps.to_json(), "read": reads.to_json(), "connect": connects.to_json(),
            "epoll_wait": polls.to_json(),
        }))
    })
}

/// Works and waits in turn.
fn repeated(time: &Time, mut wait: impl FnMut() -> Result<()>) -> Result<()> {
    let mut calls = 0;
    while time.is_left() || calls < LEAST {
        spin(WORK);
        wait()?;
        calls += 1;
    }
    Ok(())
}

/// What a system call that returns -1 for an error has to say.
fn outcome(value: i32) -> io::Result<()> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn nanosleep() -> io::Result<()> {
    let time = libc::timespec { tv_sec: 0, tv_nsec: WAIT.subsec_nanos().into() };
    // SAFETY: nanosleep(2) reads a structure that is valid for the call.
    outcome(unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) })
}

/// Runs `other` every [`WAIT`] beside `work`.
fn beside<T>(mut other: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(WAIT);
                other();
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Reads from a pipe, in which there is something to read once in a while.
fn read(time: &Time, count: &Count) -> Result<()> {
    let (reader, mut writer) = io::pipe()?;
    // Enough for a call to wait for it, and never so much that the writer waits.
    let feed = || drop(io::Write::write(&mut writer, &[0]));
    beside(feed, || {
        repeated(time, || {
            let mut byte = 0_u8;
            // SAFETY: read(2) writes one byte to a place that is valid for the call.
            let read = unsafe { libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
            count.add(outcome(read as i32))
        })
    })
}

/// Connects to a socket whose queue is full until somebody takes a connection out of it.
fn connect(time: &Time, count: &Count) -> Result<()> {
    let (listener, address, length) = listener()?;
    let listener_fd = listener.as_raw_fd();
    // SAFETY: accept(2) with no place for the peer's address, and close(2) of what it gave.
    let accept = move || unsafe {
        let accepted = libc::accept4(listener_fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_NONBLOCK);
        if accepted >= 0 {
            libc::close(accepted);
        }
    };
    beside(accept, || {
        repeated(time, || {
            let socket = socket(0)?;
            // SAFETY: connect(2) reads an address of this length, which is valid for the call.
            count.add(outcome(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }))
        })
    })
}

fn socket(flags: i32) -> io::Result<std::os::fd::OwnedFd> {
    // SAFETY: socket(2) returns a descriptor that nobody else owns, or -1.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0);
        outcome(socket)?;
        Ok(std::os::fd::FromRawFd::from_raw_fd(socket))
    }
}

/// A socket with an abstract name of this process's own and the shortest queue.
fn listener() -> io::Result<(std::os::fd::OwnedFd, libc::sockaddr_un, u32)> {
    let listener = socket(libc::SOCK_NONBLOCK)?;
    // SAFETY: plain data for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = format!("\0torture-{}", std::process::id());
    for (place, byte) in address.sun_path.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let length = (size_of::<libc::sa_family_t>() + name.len()) as u32;
    // SAFETY: bind(2) reads an address of this length, listen(2) has no pointer.
    outcome(unsafe { libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: as above.
    outcome(unsafe { libc::listen(listener.as_raw_fd(), 0) })?;
    Ok((listener, address, length))
}

fn epoll_wait(time: &Time, count: &Count) -> Result<()> {
    // SAFETY: epoll_create1(2) returns a descriptor that nobody else owns, or -1.
    let poll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    outcome(poll)?;
    // SAFETY: checked above.
    let poll: std::os::fd::OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(poll) };
    repeated(time, || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: epoll_wait(2) writes at most one event to a place that is valid for the call.
        count.add(outcome(unsafe { libc::epoll_wait(poll.as_raw_fd(), &raw mut event, 1, WAIT.as_millis() as i32) }))
    })
}
