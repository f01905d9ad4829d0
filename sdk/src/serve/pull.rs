//! `/debug/pprof/*`: what Go programs serve under these paths, so that tools made for Go work here.
//!
//! In: parsed parameters. Out: gzip pprof of samples taken from now on, or of the heap as it is, or as it changes. Reference: Go's `net/http/pprof`.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use http::header::{CONTENT_DISPOSITION, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use profiler_proto::model::join;
use profiler_proto::{ProfileSet, pprof};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::change::changes;
use super::process::{Chosen, Process};
use super::query::{BadParameter, Query};
use super::reply::Reply;
use super::site::Site;
use super::source::{CaptureError, CaptureFuture, GoroutineText, Snapshot};
use super::threads;

/// What Go takes if nothing is said.
const DEFAULT_SECONDS: u64 = 30;
/// The longest capture, in seconds.
const MOST_SECONDS: u64 = 300;
/// More of a command line is not sent.
const MOST_COMMAND_LINE: u64 = 1 << 20;
/// How long another process's command line may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many threads read one at once; those that hang keep their place.
static READERS: Semaphore = Semaphore::const_new(4);

const INDEX: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head><body>
<h1>/debug/pprof/</h1>
<p>Profiles for <code>go tool pprof</code>:</p>
<ul>
<li><a href=\"profile?seconds=30\">profile</a>: CPU samples from now on; <code>seconds</code> is 1 to 300, 30 if not said</li>
<li><a href=\"heap\">heap</a>: what lives of the memory that was sampled since the start, and what was allocated; with <code>seconds</code>, how much of both came and went within them</li>
<li><a href=\"allocs\">allocs</a>: the same, with what was allocated first</li>
<li><a href=\"goroutine\">goroutine</a>, <a href=\"block\">block</a>, <a href=\"mutex\">mutex</a>: of Go processes, what there is of goroutines, what they waited for since the start, who made them wait; with <code>seconds</code>, how that changed</li>
<li><a href=\"goroutine?debug=2\">goroutine?debug=2</a>: each goroutine as text, as a panic shows it; with <code>debug=1</code>, equal ones together</li>
<li><a href=\"threads\">threads</a>: the threads that there are, by name and state</li>
<li><a href=\"cmdline\">cmdline</a>: the program's arguments</li>
</ul>
<p>Where several processes are profiled, samples of all carry the labels <code>service</code> and <code>pid</code>; <code>pid=N</code> is one process.</p>
<p><a href=\"../../\">The flame graph</a> shows the last minutes.</p>
</body></html>
";

impl Site {
    /// `/debug/pprof/`.
    pub(super) fn pprof_index() -> Reply {
        Reply::compressible("text/html; charset=utf-8", INDEX)
    }

    /// `/debug/pprof/profile`: answers when the capture has ended; ends the capture when the client goes.
    pub(super) async fn capture(&self, query: &Query, method: &Method) -> Result<Reply, BadParameter> {
        let seconds = query.number("seconds", 1..=MOST_SECONDS, DEFAULT_SECONDS)?;
        let chosen = query.process()?;
        if method == Method::HEAD {
            return Ok(attachment(&ProfileSet::default()).bare(StatusCode::OK));
        }
        let captured = self.source.capture(Duration::from_secs(seconds), chosen.pid).await;
        Ok(answer(captured, &chosen))
    }

    /// `/debug/pprof/heap`, and `/debug/pprof/allocs`, which is the same and shows what was allocated first: as it is, or, with
    /// `seconds`, how it changed when these are over.
    pub(super) async fn heap(
        &self,
        query: &Query,
        first: Option<&'static str>,
        method: &Method,
    ) -> Result<Reply, BadParameter> {
        let keep = || self.source.keep_heap();
        self.now_or_change(query, method, |pid| self.source.heap(first, pid), keep).await
    }

    /// `/debug/pprof/{goroutine,block,mutex}`: what runtimes keep, as it is, or how it changed.
    pub(super) async fn snapshot(&self, query: &Query, of: Snapshot, method: &Method) -> Result<Reply, BadParameter> {
        self.now_or_change(query, method, |pid| self.source.snapshot(of, pid), || Box::new(())).await
    }

    /// `/debug/pprof/goroutine` with `debug`: as text, of one process after the other.
    pub(super) async fn goroutines(
        &self,
        query: &Query,
        form: GoroutineText,
        method: &Method,
    ) -> Result<Reply, BadParameter> {
        if query.one("seconds").is_some() {
            return Err(query.refusal("debug", "not with `seconds`: there is no text of a change"));
        }
        let chosen = query.process()?;
        if method == Method::HEAD {
            return Ok(Reply::text("").without_body());
        }
        // It is never closed. The turn ends once the answer is made.
        let _turn = self.looks.acquire().await.ok();
        // Of the others nothing needs to be read.
        let of_service = self.source.targets().into_iter().filter(|target| chosen.takes(target));
        let pids: Vec<u32> = of_service.map(|target| target.pid).collect();
        let pid = chosen.pid.or(if let [only] = pids[..] { Some(only) } else { None });
        let texts = match self.source.goroutines(form, pid).await {
            Ok(texts) => texts,
            Err(error) => return Ok(refused(error)),
        };
        let wanted = texts.into_iter().filter(|(target, _)| chosen.takes(target));
        let mut wanted: Vec<String> = wanted.map(|(_, text)| text).collect();
        Ok(match wanted.len() {
            0 => refused(CaptureError::NoProcess),
            1 => Reply::text(wanted.swap_remove(0)),
            _ => Reply::text(wanted.join("\n")),
        })
    }

    /// `/debug/pprof/threads`: the threads that there are.
    pub(super) async fn threads(&self, query: &Query, method: &Method) -> Result<Reply, BadParameter> {
        let targets = self.source.targets();
        let of_pid = |pid: Option<u32>| -> CaptureFuture {
            let targets = targets.iter().filter(|target| pid.is_none_or(|pid| target.pid == pid));
            Box::pin(threads::of(targets.cloned().collect()))
        };
        self.now_or_change(query, method, of_pid, || Box::new(())).await
    }

    /// What `taken` gives, or, with `seconds`, how that changed when these are over; what `keep` gives is held as long.
    async fn now_or_change(
        &self,
        query: &Query,
        method: &Method,
        taken: impl Fn(Option<u32>) -> CaptureFuture,
        keep: impl FnOnce() -> Box<dyn Send>,
    ) -> Result<Reply, BadParameter> {
        let seconds = query.number("seconds", 1..=MOST_SECONDS, 0)?;
        let chosen = query.process()?;
        // It is never closed.
        let turn = async || self.looks.acquire().await.ok();
        let profile = async {
            if seconds == 0 || method == Method::HEAD {
                let turn = turn().await;
                return Ok((taken(chosen.pid).await?, turn));
            }
            let _place = self.changes.try_acquire().map_err(|_| CaptureError::TooMany)?;
            let _kept = keep();
            let first = turn().await;
            let before = taken(chosen.pid).await?;
            drop(first);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let second = turn().await;
            Ok((changes(before, taken(chosen.pid).await?), second))
        };
        // The turn ends once the answer is made, which is a hundredth of what it is made of.
        let (captured, _turn) = profile.await.map_or_else(|why| (Err(why), None), |(sets, turn)| (Ok(sets), turn));
        let reply = answer(captured, &chosen);
        Ok(if method == Method::HEAD { reply.without_body() } else { reply })
    }

    /// `/debug/pprof/cmdline`: the arguments of the profiled process, or the first one that is chosen, NUL between them.
    pub(super) async fn command_line(&self, query: &Query) -> Result<Reply, BadParameter> {
        let chosen = query.process()?;
        let wanted = self.source.targets().into_iter().find(|target| chosen.pid.is_none_or(|pid| pid == target.pid));
        Ok(match wanted.map(|target| target.pid) {
            Some(pid) => Self::arguments_of(pid).await,
            None if chosen.pid.is_some() => refused(CaptureError::NoProcess),
            None => Self::arguments_of(std::process::id()).await,
        })
    }

    async fn arguments_of(pid: u32) -> Reply {
        let path = format!("/proc/{pid}/cmdline");
        // It is read of the process's memory, which another process can have hang for ever, by `userfaultfd` or a file system of its own.
        let read = if pid == std::process::id() {
            arguments(&path)
        } else {
            let path = path.clone();
            apart(&READERS, PATIENCE, move || arguments(&path)).await
        };
        match read {
            Ok(arguments) => Reply::bytes("text/plain; charset=utf-8", arguments),
            Err(error) => Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, format!("{path}: {error}")),
        }
    }
}

/// Does `work` on a thread of its own, which is left behind if it does not come back: not one of the runtime's, of which there may be few.
async fn apart<T: Send + 'static>(
    places: &'static Semaphore,
    patience: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let answer = async {
        let Ok(place) = places.acquire().await else { return Err(io::ErrorKind::Other.into()) };
        let (give, take) = oneshot::channel();
        let body = move || {
            let done = work();
            drop(place);
            // Nobody is there any more where it took too long.
            drop(give.send(done));
        };
        std::thread::Builder::new().name("profiler-wait".into()).spawn(body)?;
        take.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    };
    let late = || {
        io::Error::new(io::ErrorKind::TimedOut, "no answer in time: the memory of the process hangs, or others' does")
    };
    timeout(patience, answer).await.unwrap_or_else(|_| Err(late()))
}

/// The arguments in a file of procfs, without the NULs behind them.
fn arguments(path: &str) -> io::Result<Vec<u8>> {
    let mut arguments = Vec::new();
    File::open(path)?.take(MOST_COMMAND_LINE).read_to_end(&mut arguments)?;
    let end = arguments.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    arguments.truncate(end);
    Ok(arguments)
}

/// A profile as a file to keep.
pub(super) fn attachment(set: &ProfileSet) -> Reply {
    Reply::bytes("application/octet-stream", pprof::encode(set))
        .with(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"profile\""))
}

/// The profile of the chosen processes: of one as it is, of several joined, their samples labelled.
fn answer(captured: Result<Vec<ProfileSet>, CaptureError>, chosen: &Chosen) -> Reply {
    let sets = match captured {
        Ok(sets) => sets,
        Err(error) => return refused(error),
    };
    // Whoever captures only its own process may say nothing of its pid.
    let alone = sets.len() == 1 && chosen.service.is_none();
    let of_process = sets.iter().map(|set| (set, Process::of(set)));
    let wanted: Vec<_> = of_process.filter(|(_, process)| alone || chosen.has(process)).collect();
    match wanted.as_slice() {
        [] if !sets.is_empty() => refused(CaptureError::NoProcess),
        [] => attachment(&ProfileSet::default()),
        [(set, _)] if pprof::is_capture(set) => attachment(set),
        // One process at several rates.
        [(set, _)] => attachment(&join(&[(set, Vec::new())])),
        several => {
            let labelled: Vec<_> = several.iter().map(|(set, process)| (*set, process.labels())).collect();
            attachment(&join(&labelled))
        }
    }
}

fn refused(error: CaptureError) -> Reply {
    let refusal = Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, error);
    match error {
        CaptureError::TooMany => refusal.with(RETRY_AFTER, HeaderValue::from_static("30")),
        CaptureError::Off | CaptureError::NotSampled | CaptureError::TooMuch => refusal,
        CaptureError::NoHeap | CaptureError::NoRuntime | CaptureError::NoProcess => {
            Reply::refusal(StatusCode::NOT_FOUND, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Check that reads that hang hold up the thread that serves no longer than they may, that there is a bound on them, and that their places
    /// are free once they are back.
    #[test]
    fn a_read_that_hangs_is_left_behind() {
        static PLACES: Semaphore = Semaphore::const_new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = |patience, work: Box<dyn FnOnce() -> io::Result<u8> + Send>| {
            runtime.block_on(apart(&PLACES, patience, work)).map_err(|error| error.kind())
        };
        let long = Duration::from_secs(600);
        assert_eq!(read(long, Box::new(|| Ok(1))), Ok(1));
        let (release, wait) = channel::<()>();
        let hang = move || {
            _ = wait.recv();
            Ok(2)
        };
        assert_eq!(read(Duration::from_millis(20), Box::new(hang)), Err(io::ErrorKind::TimedOut));
        assert_eq!(read(Duration::from_millis(20), Box::new(|| Ok(3))), Err(io::ErrorKind::TimedOut));
        drop(release);
        assert_eq!(read(long, Box::new(|| Ok(4))), Ok(4));
        assert_eq!(read(long, Box::new(|| Err(io::ErrorKind::NotFound.into()))), Err(io::ErrorKind::NotFound));
    }
}
