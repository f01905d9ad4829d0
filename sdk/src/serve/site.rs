//! Which path is answered with what.
//!
//! In: the head of a request. Out: a response; every refusal says what was wrong and what would be right. Runs on the
//! server's runtime; what takes long gives way in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::query::{BadParameter, Query, SAMPLES};
use super::reply::Reply;
use super::security::{self, Asker, Token};
use super::source::{GoroutineText, Snapshot, Source};
use super::store::Store;
use super::{assets, host, stats};

/// What can be asked for, for those who asked for something else.
const PATHS: &str = "\
/                            the flame graph page
/flamegraph.svg              the flame graph as SVG: from, to, tag, type, growth, service, pid
/api/profile                 samples as a tree: from, to, tag, type, growth, service, pid, format=json|pprof|folded
/api/top                     the hottest functions: by, n, from, to, tag, type, growth, service, pid, format=json|text
/debug/pprof/                what `go tool pprof` can fetch
/debug/pprof/profile         CPU samples from now on, as pprof: seconds, service, pid
/debug/pprof/heap            what lives of the memory, as pprof; what came and went: seconds; service, pid
/debug/pprof/allocs          what was allocated since the start, as pprof: seconds, service, pid
/debug/pprof/goroutine       goroutines of Go processes, as pprof: seconds, service, pid; as text: debug=1|2
/debug/pprof/block           what goroutines waited for, as pprof: seconds, service, pid
/debug/pprof/mutex           who made goroutines wait for locks, as pprof: seconds, service, pid
/debug/pprof/threads         threads by name and state, as pprof: seconds, pid
/debug/pprof/cmdline         the program's arguments
/stats                       the profiler's account of itself
/healthz                     whether samples are taken
";

/// So many changes of the heap are waited for at once: each of them holds a profile.
const MOST_CHANGES: usize = 2;
/// So many looks are taken at once; one more waits for its turn. What is seen may be tens of megabytes, and is in memory until its answer is made.
const MOST_LOOKS: usize = 1;
/// How long a wrong token is answered.
const PENALTY: Duration = Duration::from_millis(250);

/// The parameters of profiles for `go tool pprof`. `gc` and `debug` are what Go knows: there is nothing to collect here, and no text but of goroutines.
const NAMED: [&str; 5] = ["seconds", "pid", "service", "gc", "debug"];

/// The answers of one server.
pub(super) struct Site {
    pub(super) source: Arc<dyn Source>,
    pub(super) store: Arc<Store>,
    /// `None` inside of a server that is not ours, whose names are its own concern.
    listening: Option<SocketAddr>,
    token: Option<Token>,
    /// Taken while a tree is made: several at once would take their memory together and end no sooner.
    pub(super) tree_maker: Semaphore,
    /// Taken while a change of the heap is waited for.
    pub(super) changes: Semaphore,
    /// Taken while the heap, threads or what a runtime keeps is looked at, and the answer made: whoever captures does that in its turn, before what is to be exported.
    pub(super) looks: Semaphore,
}

impl Site {
    /// The answers of a server that listens on `listening`, for those who know `token` if there is one.
    pub(super) fn new(
        source: Arc<dyn Source>,
        store: Arc<Store>,
        listening: Option<SocketAddr>,
        token: Option<Token>,
    ) -> Self {
        let [tree_maker, changes, looks] = [1, MOST_CHANGES, MOST_LOOKS].map(Semaphore::new);
        Self { source, store, listening, token, tree_maker, changes, looks }
    }

    /// The response to a request; bodies of requests mean nothing here.
    pub(super) async fn answer(&self, request: &Parts) -> Response<Full<Bytes>> {
        let reply = match self.refusal(request).await {
            Some(refusal) => refusal,
            None => self.route(request).await.unwrap_or_else(|bad| Reply::refusal(StatusCode::BAD_REQUEST, bad)),
        };
        reply.response(&request.headers)
    }

    /// Why a request is not looked at any further.
    async fn refusal(&self, request: &Parts) -> Option<Reply> {
        let foreign = |listening: SocketAddr| host::check(request, listening).err().map(|name| (name, listening));
        if let Some((name, listening)) = self.listening.and_then(foreign) {
            let why = format!("{name:?} is not a name of this machine; use the address {listening}");
            return Some(Reply::refusal(StatusCode::FORBIDDEN, why));
        }
        if let Some(from) = host::foreign_page(&request.headers) {
            let from: String = from.chars().take(80).collect();
            let why =
                format!("another page ({from:?}) had the browser ask for this; open it by a link or by its address");
            return Some(Reply::refusal(StatusCode::FORBIDDEN, why));
        }
        if request.method != Method::GET && request.method != Method::HEAD {
            let refusal = Reply::refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
            return Some(refusal.with(ALLOW, HeaderValue::from_static("GET, HEAD")));
        }
        self.unknown(request).await
    }

    /// The refusal of those who do not know the token. Probes of health need none.
    async fn unknown(&self, request: &Parts) -> Option<Reply> {
        let token = self.token.as_ref().filter(|_| request.uri.path() != "/healthz")?;
        match token.asker(&request.headers) {
            Asker::Known => None,
            Asker::Unknown => Some(security::unauthorized()),
            Asker::Wrong => {
                // Connections are few: so many tokens can be tried in a second.
                sleep(PENALTY).await;
                // More requests that wait behind it would keep the seat from those who know the token.
                let close = self.listening.is_some().then(|| HeaderValue::from_static("close"));
                let refusal = security::unauthorized();
                Some(if let Some(close) = close { refusal.with(CONNECTION, close) } else { refusal })
            }
        }
    }

    async fn route(&self, request: &Parts) -> Result<Reply, BadParameter> {
        let query = |known: &[&str]| Query::parse(request.uri.query(), known);
        let samples = |more: &[&str]| query(&[&SAMPLES, more].concat());
        match request.uri.path() {
            "/api/profile" => self.profile(&samples(&["format"])?).await,
            "/api/top" => self.top(&samples(&["by", "n", "format"])?).await,
            "/flamegraph.svg" => self.flamegraph(&samples(&[])?).await,
            "/debug/pprof/" => query(&[]).map(|_| Self::pprof_index()),
            // What is relative there would lead elsewhere.
            "/debug/pprof" => query(&[]).map(|_| Reply::redirection("pprof/")),
            "/debug/pprof/profile" => self.capture(&query(&NAMED)?, &request.method).await,
            "/debug/pprof/cmdline" => self.command_line(&query(&["pid"])?).await,
            path if path.starts_with("/debug/pprof/") => self.named(path, &query(&NAMED)?, request).await,
            "/stats" => query(&[]).map(|_| Reply::json(stats::json(&self.source.stats()).to_string())),
            "/healthz" => query(&[]).map(|_| self.health()),
            // The page keeps its state in its parameters; they are none of the server's.
            path => Ok(assets::find(path, &request.headers).unwrap_or_else(|| Self::not_found(path))),
        }
    }

    /// The profiles that Go has by name.
    async fn named(&self, path: &str, query: &Query, request: &Parts) -> Result<Reply, BadParameter> {
        let method = &request.method;
        match path.trim_start_matches("/debug/pprof/") {
            "heap" => self.heap(query, None, method).await,
            "allocs" => self.heap(query, Some("alloc_space"), method).await,
            "goroutine" => match text_of(query) {
                Some(form) => self.goroutines(query, form, method).await,
                None => self.snapshot(query, Snapshot::Goroutine, method).await,
            },
            "block" => self.snapshot(query, Snapshot::Block, method).await,
            "mutex" => self.snapshot(query, Snapshot::Mutex, method).await,
            "threads" => self.threads(query, method).await,
            _ => Ok(Self::not_found(path)),
        }
    }

    fn health(&self) -> Reply {
        if self.source.is_sampling() {
            Reply::text("ok\n")
        } else {
            Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, "no samples are being taken")
        }
    }

    fn not_found(path: &str) -> Reply {
        let path: String = path.chars().take(80).collect();
        Reply::refusal(StatusCode::NOT_FOUND, format!("{path:?} is not here; these are:\n\n{PATHS}"))
    }
}

/// Which text of goroutines is asked for, if any: `debug` as Go reads it, where what is no number is 0.
fn text_of(query: &Query) -> Option<GoroutineText> {
    match query.one("debug").and_then(|debug| debug.parse::<i64>().ok()) {
        Some(1) => Some(GoroutineText::Grouped),
        Some(2..) => Some(GoroutineText::Each),
        _ => None,
    }
}
