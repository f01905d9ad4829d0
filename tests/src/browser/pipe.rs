//! The DevTools protocol over a pipe: JSON messages, each ended by a zero byte.
//!
//! In: calls. Out: their answers; what the browser says unasked is kept in order. A thread reads, so that a browser that
//! hangs costs an error and not the test. Only the process that was started here is ended.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;

/// How long one answer may take: a slow machine loads a million nodes meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the browser may take to end when its pipe is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Nothing of this asks anybody but the page's own server.
const ARGUMENTS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--mute-audio",
    "--remote-debugging-pipe",
];

/// A browser process and the way to talk to it.
#[derive(Debug)]
pub(super) struct Pipe {
    child: Child,
    calls: Option<ChildStdin>,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    folder: PathBuf,
}

impl Pipe {
    /// Starts the browser with an empty profile folder.
    ///
    /// It expects calls at descriptor 3 and answers at 4; a shell puts its standard input and output there and gives way
    /// to it, so that the process stays the one that was started.
    pub(super) fn open(browser: &Path) -> Result<Self> {
        let folder = fresh_folder()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]);
        command.arg(browser).args(ARGUMENTS).arg(format!("--user-data-dir={}", folder.display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (sender, messages) = channel();
        let calls = child.stdin.take();
        if let Some(answers) = child.stdout.take() {
            std::thread::spawn(move || {
                let messages = messages_of(answers);
                messages.map(|message| sender.send(message)).take_while(std::result::Result::is_ok).for_each(drop);
            });
        }
        Ok(Self { child, calls, messages, events: Vec::new(), session: None, last_id: 0, folder })
    }

    /// From now on, calls go to the browser's first tab.
    pub(super) fn attach(&mut self) -> Result<()> {
        let targets = self.call("Target.getTargets", &json!({}))?;
        let mut targets = targets["targetInfos"].as_array().into_iter().flatten();
        let target = match targets.find(|target| target["type"] == "page") {
            Some(tab) => tab["targetId"].clone(),
            None => self.call("Target.createTarget", &json!({ "url": "about:blank" }))?["targetId"].take(),
        };
        let answer = self.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }))?;
        self.session = answer["sessionId"].as_str().map(str::to_owned);
        Ok(())
    }

    /// Calls a method and waits for its answer.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.calls.as_mut().ok_or("the browser has no input")?.write_all(&bytes)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let mut message = match self.messages.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return Err(format!("{method}: no answer in {PATIENCE:?}").into()),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{method}: the browser has ended").into()),
            };
            if message["id"] != self.last_id {
                self.events.push(message);
            } else if let Some(error) = message.get("error") {
                return Err(format!("{method}: {error}").into());
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// What the browser said unasked.
    pub(super) fn events(&self) -> &[Value] {
        &self.events
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.calls = None;
        let end = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        // It may be gone already, and so may its folder.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn messages_of(answers: impl Read) -> impl Iterator<Item = Value> {
    let messages = BufReader::new(answers).split(0).map_while(std::io::Result::ok);
    messages.filter_map(|message| serde_json::from_slice(&message).ok())
}

fn fresh_folder() -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Partner: other threads of this process; the number only has to differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("profiler-browser-{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            // A process that was killed left it, and this one has its number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", folder.display()).into()),
        }
    }
}
