//! `demo`: what `make demo` runs. Starts the shop under load, and the inventory that it calls, and shows what the profiler sees.
//!
//! In: the `shop` binary beside this one; `DEMO_SECONDS`, to end by itself. Out, on standard output: what is going on,
//! the address of the page, after ten seconds the hottest functions by endpoint, and the same over the whole run when it
//! ends. Ctrl-C and SIGTERM end it; neither service outlives it, for they end with the pipes between them.

use std::error::Error;
use std::io::{self, Write};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// When the table comes.
const FIRST_TABLE: Duration = Duration::from_secs(10);
/// Functions in it, for each endpoint.
const FUNCTIONS: u32 = 5;
/// What it shows the functions of: what the load asks for, the last one seldom.
const ENDPOINTS: [&str; 3] = ["/orders", "/search", "/report"];
/// Characters of a line of it.
const WIDTH: usize = 120;
/// Connections of the load.
const CONNECTIONS: u32 = 4;
/// How long the shop may take to open, to answer, to close.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A running service: the shop, or the inventory.
#[derive(Debug)]
struct Service {
    child: Child,
    /// The service ends when this does.
    lifeline: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
    /// URL of the flame graph.
    page: String,
}

/// The signals that end the demo.
#[derive(Debug)]
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole demo, from start to end.
async fn run() -> Outcome<()> {
    let length = demo_length(std::env::var("DEMO_SECONDS").ok().as_deref())?;
    let mut stop = Stop::listen()?;
    let inventory = Service::start(&["inventory", "--serve", "127.0.0.1:0"]).await?;
    let stock = inventory.url.trim_start_matches("http://");
    let mut shop = Service::start(&["--load", &CONNECTIONS.to_string(), "--inventory", stock]).await?;
    say(&format!("A web shop answers {CONNECTIONS} connections of load at {}, profiled meanwhile.", shop.url))?;
    say(&format!("The flame graph, live: {}", shop.page))?;
    say(&format!("The same for the inventory, which the shop calls in the same traces: {}", inventory.page))?;

    let began = Instant::now();
    let first = length.map_or(FIRST_TABLE, |length| length.min(FIRST_TABLE));
    say(&format!("Sampling; the hottest functions by endpoint follow in {} s.", first.as_secs()))?;
    let goes_on = shop.run_until(Some(began + first), &mut stop).await?;
    if goes_on {
        say(&format!("\n{}", shop.table().await?))?;
    }
    if goes_on && length != Some(first) {
        let end = length.map_or("Ctrl-C".to_owned(), |length| format!("{} s are over", length.as_secs()));
        say(&format!("Going on until {end}. The flame graph: {}", shop.page))?;
        shop.run_until(length.map(|length| began + length), &mut stop).await?;
        say(&format!("\nAt the end:\n\n{}", shop.table().await?))?;
    }
    tokio::select! {
        summary = shop.close() => say(&format!("The shop has closed: {}", summary?))?,
        () = stop.told() => {}
    }
    inventory.close().await?;
    Ok(())
}

/// `DEMO_SECONDS`, if set.
fn demo_length(text: Option<&str>) -> Outcome<Option<Duration>> {
    match text.map(str::parse) {
        None => Ok(None),
        Some(Ok(seconds @ 1..=86_400)) => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => Err(format!("DEMO_SECONDS={:?}: expected whole seconds from 1 to 86400", text.unwrap_or("")).into()),
    }
}

impl Service {
    /// Starts it on a free port and waits until it serves.
    async fn start(arguments: &[&str]) -> Outcome<Self> {
        let program = std::env::current_exe()?.with_file_name("shop");
        let mut child = Command::new(&program)
            .args(arguments)
            .args(["--listen", "127.0.0.1:0", "--until-eof"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C is for the demo, which wants a last table before the shop closes
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{}: {error}; `make demo` builds it", program.display()))?;
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take().ok_or("the shop has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let page = word_after("profiles ", &mut lines).await?;
        let url = word_after("ready ", &mut lines).await?;
        Ok(Self { child, lifeline, lines, url, page })
    }

    /// Waits until then, or for ever; false if a signal came first.
    async fn run_until(&mut self, end: Option<Instant>, stop: &mut Stop) -> Outcome<bool> {
        let over = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => Ok(true),
            () = stop.told() => Ok(false),
            status = self.child.wait() => Err(format!("the shop ended by itself: {}", status?).into()),
        }
    }

    /// The hottest functions by endpoint, as the shop's own profiler tells them once it has any of each.
    async fn table(&self) -> Outcome<String> {
        let path = format!("/api/top?by=endpoint&n={FUNCTIONS}&format=text");
        let filled = async {
            loop {
                let table = fetch(&self.page, &path).await?;
                if ENDPOINTS.iter().all(|endpoint| table.contains(&format!("endpoint={endpoint}"))) {
                    return Ok(table.lines().map(shortened).collect());
                }
                sleep(Duration::from_millis(200)).await;
            }
        };
        timeout(PATIENCE, filled).await.map_err(|_| format!("{}: no samples in {path}", self.page))?
    }

    /// Lets the shop end; its last line.
    async fn close(mut self) -> Outcome<String> {
        drop(self.lifeline.take());
        let ending = async {
            let mut last = String::new();
            while let Some(line) = self.lines.next_line().await? {
                last = line;
            }
            match self.child.wait().await? {
                status if status.success() => Ok(last),
                status => Err(format!("the shop ended with {status}").into()),
            }
        };
        timeout(PATIENCE, ending).await.map_err(|_| "the shop does not end")?
    }
}

impl Stop {
    fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for SIGINT or SIGTERM.
    async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The rest of the shop's next line, which begins like that.
async fn word_after(beginning: &str, lines: &mut Lines<BufReader<ChildStdout>>) -> Outcome<String> {
    let line = timeout(PATIENCE, lines.next_line()).await.map_err(|_| "the shop does not open")??;
    let line = line.ok_or("the shop did not open")?;
    let rest = line.strip_prefix(beginning).ok_or_else(|| format!("{line:?} is not {beginning:?}"))?;
    Ok(rest.to_owned())
}

/// The body that `http://host:port/` answers for a path. HTTP/1.0: one answer, ended by the end of the connection.
async fn fetch(page: &str, path: &str) -> Outcome<String> {
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

/// A line of the table, cut to what a wide terminal shows: names of generic functions can be very long.
fn shortened(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…\n", &line[..end]),
        None => format!("{line}\n"),
    }
}

/// One line, at once, also into a pipe.
fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
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

    /// Check that a length is whole seconds, or absent, and that anything else is refused by name.
    #[test]
    fn a_length_is_whole_seconds() {
        assert_eq!(demo_length(None).unwrap(), None);
        assert_eq!(demo_length(Some("30")).unwrap(), Some(Duration::from_secs(30)));
        for text in ["", "0", "-3", "1.5", "soon", "86401"] {
            assert!(demo_length(Some(text)).unwrap_err().to_string().contains("DEMO_SECONDS"), "{text}");
        }
    }
}
