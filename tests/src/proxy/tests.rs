//! Each fault as a plain socket sees it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\n\r\n0123456789";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// A server that takes connections one after the other, answers what is as long as [`REQUEST`], and says what came.
fn server() -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (say, said) = mpsc::channel();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut came) = (stream.unwrap(), vec![0; REQUEST.len()]);
            let mut length = 0;
            while length < REQUEST.len()
                && let Ok(read @ 1..) = stream.read(&mut came[length..])
            {
                length += read;
            }
            if length == REQUEST.len() {
                let _written = stream.write_all(ANSWER);
            }
            came.truncate(length);
            if say.send(came).is_err() {
                return;
            }
        }
    });
    (address, said)
}

/// What came back to a request through `proxy`, and how it ended.
fn exchange(proxy: &Proxy) -> (Vec<u8>, Option<ErrorKind>) {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(REQUEST).unwrap();
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).err().map(|error| error.kind());
    (answer, end)
}

/// Check how far each fault lets a request and its answer come, and how it ends.
#[test]
fn each_fault_breaks_where_it_says() {
    let (address, said) = server();
    let proxy = Proxy::start(address).unwrap();
    let (head, reset) = (REQUEST.len() - 10, Some(ErrorKind::ConnectionReset));
    let cases = [
        (Fault::Pass, REQUEST.len(), ANSWER.len(), None),
        (Fault::ResetBeforeBody, head, 0, reset),
        (Fault::ResetInBody(4), head + 4, 0, reset),
        (Fault::ResetAfterBody, REQUEST.len(), 0, reset),
        (Fault::CutAnswer(7), REQUEST.len(), 7, reset),
        (Fault::Dribble, REQUEST.len(), ANSWER.len(), None),
        (Fault::SlowAccept(Duration::from_millis(50)), REQUEST.len(), ANSWER.len(), None),
    ];
    for (number, (fault, came, answered, end)) in cases.into_iter().enumerate() {
        proxy.break_next([fault]);
        let start = Instant::now();
        let (answer, ended) = exchange(&proxy);
        assert_eq!((said.recv().unwrap().as_slice(), ended), (&REQUEST[..came], end), "{fault:?}");
        // What a reset overtakes may be lost with it.
        assert!(answer == ANSWER[..answered] || (end.is_some() && answer.is_empty()), "{fault:?}: {answer:?}");
        assert!(start.elapsed() >= Duration::from_millis(50) || !matches!(fault, Fault::SlowAccept(_)));
        assert_eq!(proxy.connections(), number + 1);
    }
}

/// Check that what is swallowed gets nowhere, and nothing comes back.
#[test]
fn what_is_swallowed_gets_nowhere() {
    let (address, said) = server();
    let proxy = Proxy::start(address).unwrap();
    proxy.break_next([Fault::Swallow]);
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(REQUEST).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(said.try_recv().is_err());
}

/// Check that a closed door refuses, a wall says nothing, and both break what is there; and that it can be opened again.
#[test]
fn doors_refuse_or_say_nothing() {
    let (address, _said) = server();
    let proxy = Proxy::start(address).unwrap();
    let connect = || TcpStream::connect_timeout(&proxy.address, Duration::from_millis(300));
    let mut open = connect().unwrap();
    proxy.close().unwrap();
    assert!(matches!(open.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    proxy.wall().unwrap();
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::TimedOut);
    proxy.open().unwrap();
    assert_eq!(exchange(&proxy), (ANSWER.to_vec(), None));
}
