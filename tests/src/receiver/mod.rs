//! A receiver: takes OTLP profiles, and metrics, over gRPC and over HTTP on one loopback port, and keeps what it took.
//!
//! In: requests of whoever is profiled, and a script of how to answer them. Out: every body as it came, decoded, checked
//! by [`profiler_proto::validate`], with the answer it got. Real sockets, real HTTP, real gRPC; a thread and a runtime of
//! its own, so that a test can wait without one. When it is dropped it panics if a body broke a rule that the test did not
//! allow: no test need ask for that.

mod body;
mod grpc;
mod http;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use profiler_proto::ProfileSet;
use profiler_proto::validate::{Finding, Rule};
use tokio::sync::oneshot;
use tonic::Code;

pub use body::{Body, Protocol};

use crate::Result;
use crate::tally::Tally;

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Full success.
    Accept,
    /// Partial success: so many are rejected.
    AcceptBut(i64),
    /// gRPC `UNAVAILABLE`, HTTP 503: to be tried again.
    Unavailable,
    /// gRPC `INVALID_ARGUMENT`, HTTP 400: not to be tried again.
    Reject,
    /// This status of HTTP, or this one of gRPC.
    Status(u16, Code),
    /// None at all, until the client gives up.
    Hang,
}

/// A running receiver; dropping it closes its port, and panics if a body broke a rule that it may not break.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections share with whoever holds the [`Receiver`].
#[derive(Debug)]
struct State {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug)]
struct Kept {
    bodies: Vec<Body>,
    metrics: Vec<Vec<u8>>,
    next: VecDeque<Answer>,
    always: Answer,
    allowed: Vec<Rule>,
}

impl Receiver {
    /// Starts one that accepts everything, on a free port of loopback.
    ///
    /// # Errors
    /// When there is no port or no thread to be had.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let kept = Kept {
            bodies: Vec::new(),
            metrics: Vec::new(),
            next: VecDeque::new(),
            always: Answer::Accept,
            allowed: Vec::new(),
        };
        let state = Arc::new(State { kept: Mutex::new(kept), changed: Condvar::new() });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("receiver".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, as an OTLP endpoint: for gRPC as it is; for HTTP, exporters append the path.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The same as an address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the next requests like this, one after the other.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state.kept().next.extend(answers);
    }

    /// Answers all requests like this, once what [`Receiver::answer_next`] said is used up.
    pub fn answer(&self, always: Answer) {
        self.state.kept().always = always;
    }

    /// Lets bodies break these rules.
    pub fn allow(&self, rules: impl IntoIterator<Item = Rule>) {
        self.state.kept().allowed.extend(rules);
    }

    /// Everything that came so far.
    #[must_use]
    pub fn bodies(&self) -> Vec<Body> {
        self.state.kept().bodies.clone()
    }

    /// Waits for metrics, at most for `limit`, and takes what came of them so far: requests, without compression.
    #[must_use]
    pub fn take_metrics(&self, limit: Duration) -> Vec<Vec<u8>> {
        let none = |kept: &mut Kept| kept.metrics.is_empty();
        let waited = self.state.changed.wait_timeout_while(self.state.kept(), limit, none);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0.metrics)
    }

    /// Waits until `enough` says so of what came, at most for `limit`. Says whether it did.
    #[must_use]
    pub fn wait(&self, limit: Duration, enough: impl Fn(&[Body]) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut kept = self.state.kept();
        while !enough(&kept.bodies) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            kept = self.state.changed.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The sums over the bodies that were accepted.
    #[must_use]
    pub fn accepted(&self) -> Tally {
        let kept = self.state.kept();
        let accepted = kept.bodies.iter().filter(|body| body.answer == Answer::Accept);
        Tally::of(accepted.flat_map(|body| &body.profiles))
    }

    /// The sums over the bodies that came, each once however often it came, and whatever it was answered.
    #[must_use]
    pub fn unique(&self) -> Tally {
        let kept = self.state.kept();
        let mut unique: Vec<&[ProfileSet]> = Vec::new();
        for body in &kept.bodies {
            if !unique.contains(&&body.profiles[..]) {
                unique.push(&body.profiles);
            }
        }
        Tally::of(unique.into_iter().flatten())
    }

    /// What is wrong with what came: undecodable bodies, and rules of OTLP or of a backend that a body breaks, but for those that it
    /// may break.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let kept = self.state.kept();
        let findings = kept.bodies.iter().flat_map(|body| &body.findings);
        findings.filter(|finding| !kept.allowed.contains(&finding.rule)).cloned().collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Fails only when the thread has ended already.
        let _sent = self.stop.take().map(|stop| stop.send(()));
        let _joined = self.thread.take().map(JoinHandle::join);
        // A second panic would hide the first.
        assert!(
            std::thread::panicking() || self.findings().is_empty(),
            "what was sent breaks rules:{}",
            list(&self.findings())
        );
    }
}

/// Findings in words, a line each.
#[must_use]
pub fn list(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n{finding}")).collect()
}

impl State {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a body, and says how to answer it.
    fn keep(&self, protocol: Protocol, bytes: &[u8]) -> Answer {
        let mut kept = self.kept();
        let answer = kept.next.pop_front().unwrap_or(kept.always);
        kept.bodies.push(Body::new(protocol, bytes, answer));
        self.changed.notify_all();
        answer
    }

    /// Keeps a request with metrics, which is always answered by success.
    fn keep_metrics(&self, bytes: &[u8]) {
        self.kept().metrics.push(bytes.to_vec());
        self.changed.notify_all();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(move |request| http::answer(request, Arc::clone(&state)));
            let server = auto::Builder::new(TokioExecutor::new());
            // A connection that ends badly is the client's own business.
            let _outcome = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::panic::AssertUnwindSafe;

    use profiler_proto::loss::STACKS;
    use profiler_proto::model::{Kind, Profile, Sample};
    use profiler_proto::otlp;

    use super::*;

    /// A profile of 5 stacks of weight 7.
    fn request() -> Vec<u8> {
        let mut set = ProfileSet::default();
        let stacks = set.dictionary.attribute(STACKS, 5);
        let attributes = set.dictionary.attribute_set([stacks]);
        let kind = Kind::cpu(&mut set.dictionary, 10_000_000);
        let samples = vec![Sample { value: 7, ..Sample::default() }];
        set.profiles = vec![Profile { kind, attributes, samples, time_unix_nanos: 1, duration_nanos: 1 }];
        otlp::encode_to_vec(&set)
    }

    fn post(receiver: &Receiver, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(receiver.address).unwrap();
        write!(
            stream,
            "POST /v1development/profiles HTTP/1.1\r\nhost: receiver\r\nconnection: close\r\n\
             content-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    /// Check that the script is followed, and that only what was accepted counts as such.
    #[test]
    fn answers_follow_the_script() {
        let receiver = Receiver::start().unwrap();
        receiver.answer_next([Answer::Unavailable, Answer::Accept, Answer::Reject]);
        let answers: Vec<_> = (0..4).map(|_| post(&receiver, &request())).collect();
        let status = |answer: &String| answer.split(' ').nth(1).map(str::to_owned);
        let expected = ["503", "200", "400", "200"].map(|status| Some(status.to_owned()));
        assert_eq!(answers.iter().map(status).collect::<Vec<_>>(), expected);
        assert!(receiver.wait(Duration::from_secs(5), |bodies| bodies.len() == 4));
        let tally = receiver.accepted();
        assert_eq!((tally.stacks, tally.weight), (10, 14));
    }

    /// Check that bytes that are no request are a finding.
    #[test]
    fn what_cannot_be_decoded_is_a_finding() {
        let receiver = Receiver::start().unwrap();
        assert!(post(&receiver, b"\xff\xff\xff").contains("200"));
        let findings = receiver.findings();
        assert!(list(&findings).contains("not valid protobuf"), "{findings:?}");
        receiver.allow([Rule::Protobuf]);
        assert_eq!(receiver.findings(), []);
    }

    /// Check that a receiver of a body that breaks a rule does not end in silence, unless it may break that rule.
    #[test]
    fn a_broken_rule_fails_the_test() {
        for allowed in [&[][..], &[Rule::Period], &[Rule::Dictionary]] {
            let receiver = Receiver::start().unwrap();
            receiver.allow(allowed.iter().copied());
            assert!(post(&receiver, b"").contains("200"));
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| drop(receiver)));
            assert_eq!(ended.is_ok(), allowed == [Rule::Dictionary], "{allowed:?}");
        }
    }
}
