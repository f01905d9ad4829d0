//! A peer with several addresses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
