//! One request to a program that serves profiles, over a connection of its own.
//!
//! In: an [`Endpoint`] and a path. Out: the body of the answer, bounded in time and bytes, or why there is none, for people. HTTP/1.1 over TCP or TLS;
//! redirects are not followed, proxies not used. Whoever says nothing holds nothing that others need: [`Permits`] is for what is large, and for names that are
//! looked up. On the main thread's runtime.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Endpoint;
use super::endpoint::is_ours;
use super::head::{self, UntilAnswered};
use crate::error::Error;

/// Most bytes of an answer, as it is sent.
const MOST_BYTES: usize = 16 << 20;
/// So many of them each endpoint may have in memory; what is larger waits for one of so many places.
const SMALL: usize = 256 << 10;
const LARGE_AT_ONCE: usize = 2;
/// Names that are looked up at once: each takes a thread of the runtime's, of which decoding needs one, too.
const NAMES_AT_ONCE: usize = 2;

/// What those who are asked have together.
#[derive(Debug)]
pub(super) struct Permits {
    large: Arc<Semaphore>,
    names: Arc<Semaphore>,
}

impl Default for Permits {
    fn default() -> Self {
        let [large, names] = [LARGE_AT_ONCE, NAMES_AT_ONCE].map(|places| Arc::new(Semaphore::new(places)));
        Self { large, names }
    }
}

/// What was answered; a large one has its place until it is dropped.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    /// For people.
    pub(super) why: String,
    /// What they can do.
    pub(super) remedy: &'static str,
    /// Whether there was none in time: another question would have as little.
    pub(super) is_late: bool,
}

impl<E: std::fmt::Display> From<E> for Unanswered {
    fn from(why: E) -> Self {
        Self { why: why.to_string(), remedy: SERVED, is_late: false }
    }
}

impl Unanswered {
    fn late(why: String) -> Self {
        Self { is_late: true, ..Self::from(why) }
    }
}

const PROVEN: &str = "let `ca` name a file with who signs its certificate, and `server_name` the name that is in it";
const SERVED: &str = "see whether the program serves net/http/pprof there, and whom it lets ask";

/// Who is asked.
pub(super) struct Peer {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    /// Where it was when its name was looked up last; nothing where that was not done.
    located: Mutex<Vec<SocketAddr>>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.endpoint.fmt(f)
    }
}

impl Peer {
    /// # Errors
    /// When there is nobody to trust.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, Error> {
        let tls = if endpoint.is_secure { Some(endpoint.tls.connector(&endpoint.name())?) } else { None };
        Ok(Self { endpoint: endpoint.clone(), tls, located: Mutex::default() })
    }

    /// Looks its name up, and asks there until this is done again: at addresses of this machine, which are given, where the first one is such; else at
    /// others alone.
    ///
    /// # Errors
    /// Why it is nowhere.
    pub(super) async fn locate(&self, within: Duration, permits: &Permits) -> Result<Vec<SocketAddr>, Unanswered> {
        self.located.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let late = || Unanswered::late(format!("its name is not found within {within:?}"));
        let until = Instant::now() + within;
        let mut all = timeout_at(until, self.addresses(permits)).await.unwrap_or_else(|_| Err(late()))?;
        let is_local = all.first().is_some_and(|first| is_ours(first.ip()));
        all.retain(|address| is_ours(address.ip()) == is_local);
        self.located.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&all);
        Ok(if is_local { all } else { Vec::new() })
    }

    pub(super) fn name(&self) -> String {
        self.endpoint.name()
    }

    /// What is served at `path`. The wait for a place that others have is no part of the time.
    ///
    /// # Errors
    /// Why there is no such answer.
    pub(super) async fn get(&self, path: &str, within: Duration, permits: &Permits) -> Result<Body, Unanswered> {
        let late = || Unanswered::late(format!("no answer within {within:?}"));
        let until = Instant::now() + within;
        let mut answer = timeout_at(until, self.ask(path, permits)).await.unwrap_or_else(|_| Err(late()))?;
        let is_read = timeout_at(until, answer.read(SMALL)).await.unwrap_or_else(|_| Err(late()))?;
        if is_read {
            return answer.body(None);
        }
        let place = Arc::clone(&permits.large).acquire_owned().await?;
        let until = Instant::now() + within;
        timeout_at(until, answer.read(MOST_BYTES)).await.unwrap_or_else(|_| Err(late()))?;
        answer.body(Some(place))
    }

    async fn ask(&self, path: &str, permits: &Permits) -> Result<Answer, Unanswered> {
        let Endpoint { base, headers, .. } = &self.endpoint;
        let mut request = Request::get(format!("{base}{path}"));
        if !headers.contains_key(header::HOST) {
            request = request.header(header::HOST, self.endpoint.authority());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let tcp = TcpStream::connect(&self.addresses(permits).await?[..]).await?;
        match &self.tls {
            None => Answer::to(request, tcp).await,
            Some(tls) => {
                let Endpoint { host, tls: said, .. } = &self.endpoint;
                let name = ServerName::try_from(said.server_name.as_ref().unwrap_or(host).clone())?;
                let unproven = |error| Unanswered { remedy: PROVEN, ..format!("TLS: {error}").into() };
                Answer::to(request, tls.connect(name, tcp).await.map_err(unproven)?).await
            }
        }
    }

    /// Where it is: on this machine, where others look who it is. A name that is looked up can take as long as its servers like, on a thread that cannot be called
    /// off: it has its place as long.
    async fn addresses(&self, permits: &Permits) -> Result<Vec<SocketAddr>, Unanswered> {
        let (Endpoint { host, port, .. }, local) = (&self.endpoint, self.endpoint.local());
        let located = self.located.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !located.is_empty() || !local.is_empty() {
            return Ok(if located.is_empty() { local } else { located });
        }
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, *port)]);
        }
        let (name, place) = ((host.clone(), *port), Arc::clone(&permits.names).acquire_owned().await?);
        let look_up = move || {
            let found = name.to_socket_addrs().map(Vec::from_iter);
            drop(place);
            found
        };
        Ok(tokio::task::spawn_blocking(look_up).await??)
    }
}

/// An answer whose head is there.
struct Answer {
    status: StatusCode,
    body: Incoming,
    read: BytesMut,
    /// The connection, which ends with this, even if the peer never closes its side.
    _connection: JoinSet<()>,
}

impl Answer {
    async fn to<S>(request: Request<Empty<Bytes>>, stream: S) -> Result<Self, Unanswered>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (stream, left) = UntilAnswered::new(stream);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut task = JoinSet::new();
        task.spawn(async move { drop(connection.await) });
        let answer = sender.send_request(request).await;
        if left.is_spent() {
            return Err(format!("no answer within {} bytes", head::MOST_BYTES).into());
        }
        let (head, body) = answer?.into_parts();
        left.is_answered();
        Ok(Self { status: head.status, body, read: BytesMut::new(), _connection: task })
    }

    /// Reads on; whether that was all, of `most` bytes in all at most. One piece more, which the connection has in memory anyway, is no more than that.
    async fn read(&mut self, most: usize) -> Result<bool, Unanswered> {
        while self.read.len() <= most {
            let Some(frame) = self.body.frame().await else { return Ok(true) };
            let frame = frame.map_err(|error| format!("its body: {error}"))?;
            self.read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        match most {
            MOST_BYTES => Err(format!("its body is too long: at most {MOST_BYTES} bytes are read").into()),
            _ => Ok(false),
        }
    }

    fn body(self, place: Option<OwnedSemaphorePermit>) -> Result<Body, Unanswered> {
        let bytes = self.read.freeze();
        if self.status == StatusCode::OK {
            return Ok(Body { bytes, _place: place });
        }
        let said: String = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).take(120).collect();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Err(format!("it answers {}{said}", self.status).into())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    }

    /// Answers each request on `stream` so, once its head is there.
    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(1) = stream.read(&mut byte).await else { return };
            head.extend(byte);
        }
        // Who asked may have enough of it, and go.
        drop(stream.write_all(answer).await);
        drop(stream.shutdown().await);
    }

    /// What is said to whoever asks a peer that answers so.
    async fn asked(text: &'static [u8], within: Duration) -> Result<Bytes, Unanswered> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            if text.is_empty() { std::future::pending::<()>().await } else { answer(stream, text).await }
        };
        let peer = Peer::new(&endpoint).unwrap();
        let permits = Permits::default();
        let asking = async { peer.get("/", within, &permits).await.map(|body| body.bytes) };
        tokio::select! {
            answer = asking => answer,
            () = async { serving.await; std::future::pending::<()>().await } => Ok(Bytes::new()),
        }
    }

    /// Check that whatever a peer does there is an answer within bounds, or why not.
    #[test]
    fn answers_are_bounded_and_refusals_told() {
        run(async {
            let hello = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", LONG).await;
            assert_eq!(hello.unwrap(), "hello");
            let refused = asked(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 4\r\n\r\nno\x1b!", LONG).await;
            let refused = refused.unwrap_err();
            assert_eq!((refused.why.as_str(), refused.is_late), ("it answers 401 Unauthorized: no!", false));
            for (length, is_whole) in [(SMALL, true), (SMALL + 1, true), (MOST_BYTES, true), (MOST_BYTES + 1, false)] {
                let text =
                    [format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes(), &vec![7; length]]
                        .concat();
                let answer = asked(text.leak(), LONG).await;
                let is_told = |long: &Unanswered| long.why.contains("at most 16777216 bytes");
                let as_it_is = answer
                    .as_ref()
                    .map_or_else(|long| !is_whole && is_told(long), |body| is_whole && body.len() == length);
                assert!(as_it_is, "{length}: {:?}", answer.err());
            }
            assert!(asked(b"who is there?\r\n", LONG).await.is_err());
            // A peer may say that it will answer; not for ever.
            let (wait, ok) = ("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            assert_eq!(asked(format!("{wait}{wait}{ok}").leak().as_bytes(), LONG).await.unwrap(), "ok");
            let flood = format!("{}{ok}", wait.repeat(2 * head::MOST_BYTES / wait.len()));
            let told = asked(flood.leak().as_bytes(), LONG).await.unwrap_err();
            assert_eq!(told.why, "no answer within 131072 bytes");
            let late = asked(b"", Duration::from_millis(50)).await.unwrap_err();
            assert!(late.is_late && late.why.contains("no answer within"), "{late:?}");
        });
    }

    /// Check that a request has one host: the address, or what the settings say, by which a server of several tells them apart.
    #[test]
    fn a_request_has_one_host() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let plain = Endpoint::new(&format!("http://{address}")).unwrap();
            let named = plain.clone().header("Host", "shop.internal").unwrap();
            for (endpoint, host) in [(plain, address.to_string()), (named, "shop.internal".into())] {
                let (peer, permits) = (Peer::new(&endpoint).unwrap(), Permits::default());
                let asking = async { peer.get("/", LONG, &permits).await.map(|body| body.bytes).unwrap() };
                let serving = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut head = vec![0; 4096];
                    let length = stream.read(&mut head).await.unwrap();
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    String::from_utf8_lossy(&head[..length]).to_lowercase()
                };
                let (_, head) = tokio::join!(asking, serving);
                let hosts: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("host: ")).collect();
                assert_eq!(hosts, [host]);
            }
        });
    }

    /// Check that who is asked is who has the first address that the endpoint stands for, where another program has the same port at the other one.
    #[test]
    fn who_is_asked_is_at_the_first_local_address() {
        run(async {
            let four = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = four.local_addr().unwrap().port();
            // Where the loopback has no IPv6, or another test has the port there, there is nothing to mix up.
            let Ok(six) = TcpListener::bind(("::1", port)).await else {
                println!("NOT RUN: nobody can listen at [::1]:{port} here");
                return;
            };
            for (listener, text) in [(four, "4"), (six, "6")] {
                let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{text}");
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        answer(stream, whole.as_bytes()).await;
                    }
                });
            }
            for host in ["localhost", "[::]", "0.0.0.0", "127.0.0.1", "[::1]"] {
                let endpoint = Endpoint::new(&format!("http://{host}:{port}")).unwrap();
                let first = if endpoint.local()[0].is_ipv4() { "4" } else { "6" };
                let answer = Peer::new(&endpoint).unwrap().get("/", LONG, &Permits::default()).await.unwrap();
                assert_eq!(answer.bytes, first, "{host}");
            }
        });
    }

    /// Check that of many who begin with a large answer and then say no more, two hold a place, and an answer that is small needs none.
    #[test]
    fn large_answers_wait_for_each_other_and_small_ones_do_not() {
        run(async {
            let permits = Arc::new(Permits::default());
            let large = [&b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n"[..], &vec![7; 2 * SMALL]].concat();
            let mut hung = JoinSet::new();
            for _ in 0..2 * LARGE_AT_ONCE {
                let (permits, large) = (Arc::clone(&permits), large.clone());
                hung.spawn(async move {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
                    let peer = Peer::new(&endpoint).unwrap();
                    let serving = async {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        drop(stream.write_all(&large).await);
                        std::future::pending::<()>().await;
                    };
                    tokio::select! { answer = peer.get("/", Duration::from_secs(600), &permits) => drop(answer), () = serving => {} }
                });
            }
            let until = Instant::now() + LONG;
            while permits.large.available_permits() > 0 {
                assert!(Instant::now() < until);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
            });
            let peer = Peer::new(&endpoint).unwrap();
            let small = tokio::time::timeout(LONG, peer.get("/", LONG, &permits))
                .await
                .expect("it waits for those that are large");
            assert_eq!(small.unwrap().bytes, "hello");
        });
    }
}
