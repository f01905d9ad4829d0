//! A host that closes all descriptors, as daemons do, and goes on to open its own.
//!
//! In: `first`, how many files it opens before the others, so that each number of the profiler's comes to mean something else
//! from run to run; `names`, whether it is busy finding names meanwhile; `delivers`, whether a profile has arrived before;
//! `patience`, how many seconds its profiles may take at the end. Out: what became of the host's descriptors (opened at once, so that they have the numbers that were the
//! profiler's), of its work, of its server that has our pages, of the profiler, and of another one that is started afterwards.

use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use profiler::{Config, ProfileKind, Profiler};
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Result, stats};
use serde_json::{Value, json};
use tower_service::Service as _;

use crate::MORE;

/// Many times as many of each kind as the profiler can have had.
const ROUNDS: usize = 20;
/// What is in each file.
const TEXT: &[u8] = b"the host's own";
/// How long the profiler may take, on a busy machine, to see that there is nothing left to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Samples, closes everything, opens its own, works on, and looks at what is left.
pub(crate) fn closed(options: &Options) -> Result<Value> {
    let busy = || std::thread::spawn(|| spin(Duration::from_secs(3)));
    let workers: Vec<_> = (0..2).map(|_| busy()).collect();
    let config = Config::new("closed").interval(Duration::from_millis(300)).symbolize(options.value_or("names", true)?);
    let profiler = profiler::start(config.serve("127.0.0.1:0").serve_within())?;
    spin(Duration::from_millis(1000));
    let end = Instant::now() + MORE;
    while options.value_or("delivers", true)? && profiler.stats().account.exported == 0 && Instant::now() < end {
        spin(Duration::from_millis(10));
    }
    let before = stats::to_json(&profiler.stats());
    // SAFETY: close_range(2) with numbers only. Nobody here uses a descriptor above standard error, but the profiler.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let mut own = Descriptors::open(options.value("first")?)?;
    let within = within();
    let flushed = profiler.flush(PATIENCE);
    spin(Duration::from_secs(2));
    let refused = refused(&profiler);
    let work_goes_on = workers.into_iter().all(|worker| worker.join().is_ok());
    let mut changed = own.changed();
    let after = stats::to_json(&profiler.stats());
    // Another one may be started as soon as this one has answered.
    let stopped = profiler.shutdown(PATIENCE);
    let again = again(Duration::from_secs(options.value_or("patience", 60)?))?;
    changed.extend(own.changed());
    Ok(json!({
        "before": before, "after": after, "flushed": flushed, "refused": refused, "within": within,
        "work_goes_on": work_goes_on, "stopped": stopped, "descriptors": own.list.len(), "changed": changed, "again": again,
    }))
}

/// Whether the profiler says no to what it cannot do any more, and why, without waiting for it.
fn refused(profiler: &Profiler) -> bool {
    let says_why = |error: profiler::Error| error.to_string().contains("closed the descriptors");
    let rate = profiler.set_rate_hz(200);
    profiler.pause();
    let captured = profiler.capture(ProfileKind::Cpu, Duration::from_secs(1));
    [rate, profiler.resume(), captured.map(drop)].into_iter().all(|outcome| outcome.is_err_and(says_why))
}

/// What the pages inside of the host's own server answer, if they do so at once: the status.
fn within() -> Option<u16> {
    let request = http::Request::get("/stats").body(()).ok()?;
    let mut answer = pin!(profiler::serve::service().call(request));
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => Some(response.status().as_u16()),
        Poll::Pending => None,
    }
}

/// Profiles again.
fn again(patience: Duration) -> Result<Value> {
    let profiler = profiler::start(Config::new("again").interval(Duration::from_millis(300)).symbolize(false))?;
    spin(Duration::from_millis(500));
    let flushed = profiler.flush(patience);
    let stats = stats::to_json(&profiler.stats());
    Ok(json!({ "flushed": flushed, "stopped": profiler.shutdown(patience), "stats": stats }))
}

/// A descriptor of the host's.
struct Own {
    file: File,
    kind: &'static str,
    identity: (u64, u64),
}

/// Descriptors of every kind, and where the files are.
struct Descriptors {
    folder: PathBuf,
    list: Vec<Own>,
}

impl Descriptors {
    fn open(first: usize) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("profiler-closed-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut this = Self { folder, list: Vec::new() };
        (0..first).try_for_each(|_| this.file())?;
        for _ in 0..ROUNDS {
            this.file()?;
            let (reader, writer) = io::pipe()?;
            this.keep("pipe", reader.into())?;
            this.keep("pipe's writing end", writer.into())?;
            let (one, other) = UnixStream::pair()?;
            this.keep("socket", one.into())?;
            this.keep("socket", other.into())?;
            // SAFETY: eventfd(2) and epoll_create1(2), with numbers only.
            let made = unsafe { [libc::eventfd(0, libc::EFD_CLOEXEC), libc::epoll_create1(libc::EPOLL_CLOEXEC)] };
            for (descriptor, kind) in made.into_iter().zip(["eventfd", "epoll"]) {
                if descriptor < 0 {
                    return Err(io::Error::last_os_error().into());
                }
                // SAFETY: the call has just made this descriptor, and nobody else knows of it.
                this.keep(kind, unsafe { OwnedFd::from_raw_fd(descriptor) })?;
            }
        }
        Ok(this)
    }

    fn file(&mut self) -> Result<()> {
        let path = self.folder.join(self.list.len().to_string());
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all(TEXT)?;
        self.keep("file", file.into())
    }

    fn keep(&mut self, kind: &'static str, descriptor: OwnedFd) -> Result<()> {
        let file = File::from(descriptor);
        // SAFETY: fcntl(2) on a descriptor that is ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let found = file.metadata()?;
        self.list.push(Own { file, kind, identity: (found.dev(), found.ino()) });
        Ok(())
    }

    /// The descriptors that are not as they were.
    fn changed(&mut self) -> Vec<String> {
        let change = |own: &mut Own| own.change().map(|why| format!("{} {}: {why}", own.kind, own.file.as_raw_fd()));
        self.list.iter_mut().filter_map(change).collect()
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Own {
    /// In what it is not as it was made: another file by now, or with other content.
    fn change(&mut self) -> Option<String> {
        let found = match self.file.metadata() {
            Ok(found) => found,
            Err(error) => return Some(format!("closed: {error}")),
        };
        if (found.dev(), found.ino()) != self.identity {
            return Some("another file".to_owned());
        }
        let information = || fs::read_to_string(format!("/proc/self/fdinfo/{}", self.file.as_raw_fd()));
        match self.kind {
            "file" if found.len() != TEXT.len() as u64 => Some(format!("{} bytes", found.len())),
            "epoll" => match information() {
                Ok(text) if text.contains("tfd:") => Some(text),
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            },
            "pipe" | "socket" | "eventfd" => match self.file.read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                outcome => Some(format!("{outcome:?} is to be read")),
            },
            _ => None,
        }
    }
}
