//! One HTTP GET over a plain socket, for the pages and figures that a profiled process serves.
//!
//! In: an address and a path. Out: status and body. HTTP/1.0, so that the body simply ends with the connection
//! (RFC 1945); compressed bodies stay as they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::Result;

/// The status and the body at `path` of `address`, waiting at most `limit` for each part of it.
///
/// # Errors
/// When nobody answers in time, or not in HTTP.
pub fn get(address: SocketAddr, path: &str, limit: Duration) -> Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let blank = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("the answer has no end of its head")?;
    let head = std::str::from_utf8(&answer[..blank])?;
    let status = head.split(' ').nth(1).ok_or("the answer has no status")?.parse()?;
    Ok((status, answer.split_off(blank + 4)))
}

/// The JSON at `path` of `address`.
///
/// # Errors
/// When nobody answers within a minute, or not with 200 and JSON.
pub fn json(address: SocketAddr, path: &str) -> Result<Value> {
    // Names may be looked up meanwhile, which takes long on a busy machine.
    match get(address, path, Duration::from_secs(60))? {
        (200, body) => Ok(serde_json::from_slice(&body)?),
        (status, body) => Err(format!("{path}: {status}, {}", String::from_utf8_lossy(&body)).into()),
    }
}
