//! A command that waits at its threshold until it is sampled.
//!
//! In: a program with its arguments. Out: a child process that has everything but its program: it is this binary, told by [`HOLD`] to wait for
//! a word on a socket and to become the program then. So sampling knows its pid before the first instruction of the program runs, and
//! nothing but safe code is needed between the two. The socket is closed when the program begins.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// The hidden command of this binary by which a child waits.
pub const HOLD: &str = "hold-and-exec";
/// How long a child may take to come to the threshold.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child at the threshold.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) child: Child,
    program: String,
    threshold: UnixStream,
}

impl Held {
    /// Starts a child that is to become `command`.
    pub(super) fn start(command: &[OsString]) -> Result<Self, Error> {
        let failed = |what: &str, error: io::Error| {
            Error::new(what, error.to_string(), "check that processes can be started here, and try again")
        };
        let (listener, name) = listen().map_err(|error| failed("listen for the command", error))?;
        let binary = std::env::current_exe().map_err(|error| failed("find this binary", error))?;
        let mut hold = Command::new(binary);
        hold.arg(HOLD).arg(&name).args(command);
        let mut child = hold.spawn().map_err(|error| failed("start the command", error))?;
        match accept(&listener, &mut child) {
            Ok(threshold) => {
                let program = command.first().map(|program| program.to_string_lossy().into_owned());
                Ok(Self { child, program: program.unwrap_or_default(), threshold })
            }
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                Err(failed("hold the command", error))
            }
        }
    }

    /// Lets it become its program; ends when it has, or could not.
    pub(super) fn release(mut self) -> Result<Child, Error> {
        let mut said = String::new();
        let end = self.threshold.write_all(b"\n").and_then(|()| self.threshold.read_to_string(&mut said));
        if let (Ok(_), true) = (&end, said.is_empty()) {
            return Ok(self.child);
        }
        drop(self.child.wait());
        let why = end.err().map_or(said, |error| error.to_string());
        Err(Error::new(self.program, why, "give -c a program that is in PATH, or a path to one"))
    }
}

/// A socket in the abstract namespace (unix(7)), which no file is left of.
fn listen() -> io::Result<(UnixListener, String)> {
    let name = format!("profiler-sidecar-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    Ok((listener, name))
}

/// Waits for the child to come, as long as it lives.
fn accept(listener: &UnixListener, child: &mut Child) -> io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if child.try_wait()?.is_some() => return Err(io::Error::other("it ended before it began")),
            Err(_) if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The child's side: waits at the threshold `name` and becomes `command`. Returns only if it cannot: with an error
/// if the other side could not be told why.
#[must_use]
pub fn hold(name: &str, command: &[OsString]) -> Option<Error> {
    let failed = |why: String| Some(Error::new(HOLD, why, "this command is for `record -c` alone"));
    let address = match SocketAddr::from_abstract_name(name) {
        Ok(address) => address,
        Err(error) => return failed(error.to_string()),
    };
    let mut threshold = match UnixStream::connect_addr(&address) {
        Ok(threshold) => threshold,
        Err(error) => return failed(error.to_string()),
    };
    match threshold.read(&mut [0]) {
        Ok(1) => {}
        Ok(_) => return failed("the recorder has gone".into()),
        Err(error) => return failed(error.to_string()),
    }
    let Some((program, arguments)) = command.split_first() else { return failed("there is no command".into()) };
    // The socket closes with the new program, as all of ours do: the other side reads its end.
    let error = Command::new(program).args(arguments).exec();
    threshold.write_all(error.to_string().as_bytes()).err().and_then(|untold| failed(untold.to_string()))
}
