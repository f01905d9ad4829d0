//! A peer with several addresses.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

/// A listener that the kernel lets nobody in to: its queue has room for one, who is there already.
async fn wall() -> (TcpListener, TcpStream, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let filler = TcpStream::connect(address).await.unwrap();
    (listener, filler, address)
}

fn connection() -> Connection {
    Connection::new("peer".into(), 4318, Version::Http1, None)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

/// Check that an address that says nothing hides no other, and that it is not asked first once the other one has answered.
#[tokio::test]
async fn a_dead_address_hides_no_other() {
    let (_listener, _filler, dead) = wall().await;
    let living = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut connection = connection();
    let addresses = vec![dead, living.local_addr().unwrap()];
    let in_time = connection.connect(addresses.clone(), soon());
    tokio::time::timeout(Duration::from_secs(2), in_time).await.expect("the dead address took all the time").unwrap();
    assert_eq!(connection.last, Some((addresses[1], false)));
    connection.last = Some((addresses[1], true));
    assert!(connection.rank(addresses[1]) < connection.rank(addresses[0]));
}

/// Check that an address that lets us connect and does not answer comes last the next time.
#[tokio::test]
async fn an_address_that_does_not_answer_comes_last() {
    let (silent, other) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let addresses = [&silent, &other].map(|listener| listener.local_addr().unwrap());
    let mut connection = connection();
    for address in [addresses[0], addresses[1], addresses[0]] {
        connection.connect(addresses.to_vec(), soon()).await.unwrap();
        assert_eq!(connection.last, Some((address, false)));
    }
}

/// Check that it is said why the last address let nobody in.
#[tokio::test]
async fn the_reason_names_the_peer() {
    let (_listener, _filler, dead) = wall().await;
    let mut connection = connection();
    let error = connection.connect(vec![dead], Instant::now() + Duration::from_millis(50)).await.unwrap_err();
    assert!(error.starts_with(&format!("connect to peer:4318: {dead}: no connection within")), "{error}");
    let error = connection.connect(Vec::new(), soon()).await.unwrap_err();
    assert_eq!(error, "connect to peer:4318: the name has no address");
}

/// Check that it is remembered whether an address answered, request by request.
#[tokio::test]
async fn whether_an_address_answered_is_remembered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in [&b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"[..], b""] {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 16]).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    });
    let mut connection = Connection::new("127.0.0.1".into(), address.port(), Version::Http1, None);
    for answered in [true, false] {
        let request = Request::post("/").header("host", "peer").body(Full::new(Bytes::from_static(b"body"))).unwrap();
        assert_eq!(connection.exchange(request, Duration::from_secs(20)).await.is_ok(), answered);
        assert_eq!(connection.last, Some((address, answered)));
    }
}

/// A server of HTTP/1.1 on `stream` that answers each request with nothing, and says how many came.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> usize {
    let (mut came, mut bytes) = (0, [0; 1024]);
    while tokio::time::timeout(LONG, stream.read(&mut bytes)).await.unwrap().is_ok_and(|count| count > 0) {
        came += 1;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
    came
}

fn request() -> Request<Full<Bytes>> {
    Request::post("/").header("host", "peer").body(Full::new(Bytes::from_static(b"body"))).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

/// Check that an old connection is replaced by a new one, and kept where there is none to be had.
#[tokio::test]
async fn an_old_connection_is_replaced_if_it_can_be() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connection = Connection::new("127.0.0.1".into(), port, Version::Http1, None);
    connection.ages.most = Duration::ZERO;
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let first = tokio::spawn(answer_all(listener.accept().await.unwrap().0));
        let second = tokio::spawn(answer_all(listener.accept().await.unwrap().0));
        assert_eq!(first.await.unwrap(), 1, "the first is closed when there is a second");
        drop(listener);
        gone.send(()).unwrap();
        second.await.unwrap()
    });
    for _ in 0..2 {
        assert!(connection.exchange(request(), LONG).await.is_ok());
    }
    // The listener has gone, and what was connected is still good.
    is_gone.await.unwrap();
    for _ in 0..2 {
        assert!(connection.exchange(request(), LONG).await.is_ok());
    }
    drop(connection);
    assert_eq!(server.await.unwrap(), 3);
}

/// Check that a connection that was idle for too long is closed by us, not at the next request only, and that the next request goes on another.
#[tokio::test]
async fn an_idle_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut connection =
        Connection::new("127.0.0.1".into(), listener.local_addr().unwrap().port(), Version::Http1, None);
    connection.ages.idle = Duration::from_millis(20);
    for _ in 0..2 {
        let server = async { answer_all(listener.accept().await.unwrap().0).await };
        let (answered, came) = tokio::join!(connection.exchange(request(), LONG), server);
        assert_eq!((answered.is_ok(), came), (true, 1));
    }
}

/// Check that a connection is not idle while an answer is waited for.
#[tokio::test]
async fn a_slow_answer_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut connection =
        Connection::new("127.0.0.1".into(), listener.local_addr().unwrap().port(), Version::Http1, None);
    connection.ages.idle = Duration::from_millis(5);
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        stream.read_exact(&mut [0; 16]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    };
    let (answered, ()) = tokio::join!(connection.exchange(request(), LONG), server);
    assert!(answered.is_ok());
}

/// Check that a peer that gives no sign of life under a request is given up long before the time of the request is over.
#[tokio::test]
async fn a_peer_without_a_sign_of_life_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connection = Connection::new("127.0.0.1".into(), port, Version::Http2, None);
    (connection.ages.ping, connection.ages.pong) = (Duration::from_millis(20), Duration::from_millis(20));
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        // Settings, which are none (RFC 9113, section 6.5); then nothing.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    });
    let mut request = request();
    *request.uri_mut() = "http://peer/".parse().unwrap();
    let why = connection.exchange(request, Duration::from_secs(600)).await.unwrap_err();
    assert!(why.starts_with("send: ") && why.contains("keep-alive"), "{why}");
    server.await.unwrap();
}

/// Check that nothing is left of a connection to a peer that lets us send much and reads none of it.
#[tokio::test]
async fn nothing_is_left_of_a_peer_that_stops_reading() {
    const SETTINGS: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff];
    const WINDOW_UPDATE: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0];
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connection = Connection::new("127.0.0.1".into(), port, Version::Http2, None);
    let request = Request::post("http://peer/").body(Full::new(Bytes::from(vec![0; 32 << 20]))).unwrap();
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        stream.write_all(&[&SETTINGS[..], &WINDOW_UPDATE].concat()).await.unwrap();
        stream
    };
    let (answered, _unread) = tokio::join!(connection.exchange(request, Duration::from_millis(500)), server);
    assert!(answered.is_err());
    let metrics = tokio::runtime::Handle::current().metrics();
    let ended = async {
        while metrics.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok(), "{} tasks", metrics.num_alive_tasks());
}

/// Check that a socket of Unix is as good as an address, and that an error names it.
#[tokio::test]
async fn a_socket_of_unix_is_connected_to() {
    let path = std::env::temp_dir().join(format!("profiler-transport-{}.sock", std::process::id()));
    let _left = std::fs::remove_file(&path);
    let mut connection = connection().at(path.clone());
    let why = connection.exchange(request(), LONG).await.unwrap_err();
    assert!(why.contains(path.to_str().unwrap()) && why.contains("No such file"), "{why}");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move { answer_all(listener.accept().await.unwrap().0).await });
    for _ in 0..2 {
        assert!(connection.exchange(request(), LONG).await.is_ok());
    }
    drop(connection);
    assert_eq!(server.await.unwrap(), 2);
    std::fs::remove_file(path).unwrap();
}
