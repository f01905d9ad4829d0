//! `/debug/pprof/*`: what Go programs serve under these paths, so that tools made for Go work here.
//!
//! In: parsed parameters. Out: gzip pprof of samples taken from now on, or of the heap as it is, or as it changes. Reference: Go's `net/http/pprof`.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use http::header::{CONTENT_DISPOSITION, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use profiler_proto::{ProfileSet, pprof};

use super::change::change;
use super::query::{BadParameter, Query};
use super::reply::Reply;
use super::site::Site;
use super::source::CaptureError;

/// What Go takes if nothing is said.
const DEFAULT_SECONDS: u64 = 30;
/// The longest capture, in seconds.
const MOST_SECONDS: u64 = 300;
/// So many changes of the heap are waited for at once: each of them holds a profile.
pub(super) const MOST_CHANGES: usize = 4;
/// More of a command line is not sent.
const MOST_COMMAND_LINE: u64 = 1 << 20;

const INDEX: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head><body>
<h1>/debug/pprof/</h1>
<p>Profiles for <code>go tool pprof</code>:</p>
<ul>
<li><a href=\"/debug/pprof/profile?seconds=30\">profile</a>: CPU samples from now on; <code>seconds</code> is 1 to 300, 30 if not said</li>
<li><a href=\"/debug/pprof/heap\">heap</a>: what lives of the memory that was sampled since the start, and what was allocated; with <code>seconds</code>, how much of both came and went within them</li>
<li><a href=\"/debug/pprof/allocs\">allocs</a>: the same, with what was allocated first</li>
<li><a href=\"/debug/pprof/cmdline\">cmdline</a>: the program's arguments</li>
</ul>
<p><a href=\"/\">The flame graph</a> shows the last minutes.</p>
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
        if method == Method::HEAD {
            return Ok(attachment(&ProfileSet::default()).bare(StatusCode::OK));
        }
        Ok(match self.source.capture(Duration::from_secs(seconds)).await {
            Ok(set) => attachment(&set),
            Err(error) => refused(error),
        })
    }

    /// `/debug/pprof/heap`, and `/debug/pprof/allocs`, which is the same and shows what was allocated first: as it is, or, with
    /// `seconds`, how it changed when these are over.
    pub(super) async fn heap(
        &self,
        query: &Query,
        first: Option<&'static str>,
        method: &Method,
    ) -> Result<Reply, BadParameter> {
        let seconds = query.number("seconds", 1..=MOST_SECONDS, 0)?;
        let profile = async {
            if seconds == 0 || method == Method::HEAD {
                return self.source.heap(first).await;
            }
            let _place = self.changes.try_acquire().map_err(|_| CaptureError::TooMany)?;
            let _kept = self.source.keep_heap();
            let before = self.source.heap(first).await?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(change(before, self.source.heap(first).await?))
        };
        Ok(match profile.await {
            Ok(set) if method == Method::HEAD => attachment(&set).bare(StatusCode::OK),
            Ok(set) => attachment(&set),
            Err(error) => refused(error),
        })
    }

    /// `/debug/pprof/cmdline`: the arguments of the profiled process, NUL between them.
    pub(super) fn command_line(&self) -> Reply {
        let pid = self.source.targets().first().map_or_else(std::process::id, |target| target.pid);
        let path = format!("/proc/{pid}/cmdline");
        let mut arguments = Vec::new();
        match File::open(&path).and_then(|file| file.take(MOST_COMMAND_LINE).read_to_end(&mut arguments)) {
            Ok(_) => {
                let end = arguments.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                arguments.truncate(end);
                Reply::bytes("text/plain; charset=utf-8", arguments)
            }
            Err(error) => Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, format!("{path}: {error}")),
        }
    }
}

/// A profile as a file to keep.
pub(super) fn attachment(set: &ProfileSet) -> Reply {
    Reply::bytes("application/octet-stream", pprof::encode(set))
        .with(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"profile\""))
}

fn refused(error: CaptureError) -> Reply {
    let refusal = Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, error);
    match error {
        CaptureError::TooMany => refusal.with(RETRY_AFTER, HeaderValue::from_static("30")),
        CaptureError::Off => refusal,
        CaptureError::NoHeap => Reply::refusal(StatusCode::NOT_FOUND, error),
    }
}
