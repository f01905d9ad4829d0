//! A request over HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::DEADLINE;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(address: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    // Who hangs fails the test, and does not hang it.
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, body: answer[end + 4..].to_vec() }
}
