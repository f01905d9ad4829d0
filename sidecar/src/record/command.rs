//! A command that waits at its threshold until it is sampled.
//!
//! In: a program with its arguments. Out: a child process that has everything but its program: it is this binary, told by [`HOLD`] to wait for
//! a word on a socket and to become the program then. So sampling knows its pid before the first instruction of the program runs, and
//! nothing but safe code is needed between the two. The socket has no name by which another could come to it: it is the child's standard input until
//! the program's own comes with the word, and is closed when the program begins.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::error::Error;

/// The hidden command of this binary by which a child waits.
pub const HOLD: &str = "hold-and-exec";
/// This binary, also where another one has its name by now.
const OURSELVES: &str = "/proc/self/exe";
/// How long a child may take to come to the threshold, and to go over it.
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
        let (threshold, inner) = threshold().map_err(|error| failed("make a socket for the command", error))?;
        let mut hold = Command::new(OURSELVES);
        hold.arg(HOLD).args(command).stdin(inner);
        let mut child = hold.spawn().map_err(|error| failed("start the command", error))?;
        // The child's end is the child's alone: if that ends, this is read.
        drop(hold);
        if let Err(error) = (&threshold).read_exact(&mut [0]) {
            end(&mut child);
            return Err(failed("hold the command", untimely(error)));
        }
        let program = command.first().map(|program| program.to_string_lossy().into_owned());
        Ok(Self { child, program: program.unwrap_or_default(), threshold })
    }

    /// Lets it become its program; ends when it has, or could not.
    pub(super) fn release(mut self) -> Result<Child, Error> {
        let mut said = String::new();
        let over = let_go(&self.threshold).and_then(|()| self.threshold.read_to_string(&mut said));
        if let (Ok(_), true) = (&over, said.is_empty()) {
            return Ok(self.child);
        }
        end(&mut self.child);
        let why = over.err().map_or(said, |error| untimely(error).to_string());
        Err(Error::new(self.program, why, "give -c a program that is in PATH, or a path to one"))
    }
}

/// Our end of the socket, which waits no longer than there is patience, and the child's.
fn threshold() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, inner) = UnixStream::pair()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    Ok((ours, inner.into()))
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    drop(child.kill());
    drop(child.wait());
}

/// What a read that took too long, or ended early, says of the child.
fn untimely(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(format!("it did not begin within {PATIENCE:?}")),
        io::ErrorKind::UnexpectedEof => io::Error::other("it ended before it began"),
        _ => error,
    }
}

/// The word to go, with our standard input, which is to be the program's.
fn let_go(threshold: &UnixStream) -> io::Result<()> {
    let (stdin, mut space) = (io::stdin(), [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))]);
    let mut with = SendAncillaryBuffer::new(&mut space);
    let descriptors = [stdin.as_fd()];
    with.push(SendAncillaryMessage::ScmRights(&descriptors));
    // One byte is sent whole or not at all.
    Ok(sendmsg(threshold, &[IoSlice::new(b"\n")], &mut with, SendFlags::NOSIGNAL).map(|_| ())?)
}

/// The child's side: waits at the threshold and becomes `command`. Returns only if it cannot: with an error if the other side could not be told why.
#[must_use]
pub fn hold(command: &[OsString]) -> Option<Error> {
    let failed = |why: String| Some(Error::new(HOLD, why, "this command is for `record -c` alone"));
    let (mut threshold, stdin) = match wait() {
        Ok(Some(come)) => come,
        // The recorder has ended without the word, and says why.
        Ok(None) => return None,
        Err(error) => return failed(error.to_string()),
    };
    let Some((program, arguments)) = command.split_first() else { return failed("there is no command".into()) };
    // The socket closes with the new program, as all of ours do: the other side reads its end.
    let error = Command::new(program).args(arguments).stdin(stdin).exec();
    threshold.write_all(error.to_string().as_bytes()).err().and_then(|untold| failed(untold.to_string()))
}

/// Says that we are there, and waits for the word: the threshold, and the program's standard input. `None`: the recorder has gone.
fn wait() -> io::Result<Option<(UnixStream, OwnedFd)>> {
    let stdin = io::stdin();
    if sockopt::socket_domain(&stdin)? != AddressFamily::UNIX {
        return Err(io::Error::other("its standard input is none of a recorder's"));
    }
    let mut threshold = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    threshold.write_all(b"\n")?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&threshold, &mut [IoSliceMut::new(&mut [0])], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let come = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(come.map(|stdin| (threshold, stdin)))
}
