//! The table of the hottest functions, as a page's address gives it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::Outcome;
use crate::service::PATIENCE;

/// Functions of each endpoint.
const FUNCTIONS: u32 = 5;
/// Characters of a line.
const WIDTH: usize = 120;

/// The hottest functions by endpoint that `page` knows, of all processes or of one, once it has any of each of `endpoints`.
pub(crate) async fn table(page: &str, pid: Option<u32>, endpoints: &[&str]) -> Outcome<String> {
    let of = pid.map(|pid| format!("&pid={pid}")).unwrap_or_default();
    let path = format!("/api/top?by=endpoint&n={FUNCTIONS}&format=text{of}");
    let filled = async {
        loop {
            let table = fetch(page, &path).await?;
            if endpoints.iter().all(|endpoint| table.contains(&format!("endpoint={endpoint}"))) {
                return Ok(table.lines().map(shortened).collect());
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, filled).await.map_err(|_| format!("{page}: no samples in {path}"))?
}

/// The body that `http://host:port/` answers for a path. HTTP/1.0: one answer, ended by the end of the connection.
pub(crate) async fn fetch(page: &str, path: &str) -> Outcome<String> {
    let host = page.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer that is not HTTP")?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("{page} answered {path} with {}: {body}", head.lines().next().unwrap_or("nothing")).into()),
    }
}

/// A line, cut to what a wide terminal shows: names of generic functions can be very long.
fn shortened(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…\n", &line[..end]),
        None => format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only what is too long is cut, and at a character.
    #[test]
    fn long_lines_are_cut() {
        assert_eq!(shortened("main"), "main\n");
        assert_eq!(shortened(&"é".repeat(300)), format!("{}…\n", "é".repeat(WIDTH)));
    }
}
