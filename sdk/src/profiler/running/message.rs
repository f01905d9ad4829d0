//! What the threads of the profiler tell each other.
//!
//! The guard and the server send [`Command`]s to `profiler`, which sends [`Task`]s to `profiler-io`; answers go back through
//! the [`Reply`] that came with the question. Nobody waits without a bound.

use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant, SystemTime};

use profiler_proto::ProfileSet;

use crate::aggregate::Window;
use crate::error::Error;
use crate::heap::{Mark, Since};

/// Why nothing goes on where the host has closed the descriptors, and what is to be done.
pub(super) const CLOSED: &str =
    "the program closed the descriptors of the profiler, as daemons do that close all of them";
pub(super) const AFTER_CLOSED: &str = "shut this profiler down, start another one";

/// What `profiler` is asked to do.
pub(super) enum Command {
    Capture {
        duration: Duration,
        reply: CaptureReply,
    },
    Flush {
        deadline: Instant,
        reply: Reply<bool>,
    },
    Pause {
        reply: Reply<()>,
    },
    Resume {
        reply: Reply<Result<(), Error>>,
    },
    SetRate {
        rate_hz: u32,
        reply: Reply<Result<(), Error>>,
    },
    /// The heap as it is now.
    Heap {
        asked: Box<HeapAsked>,
        reply: CaptureReply,
    },
    SetHeapInterval {
        lg_interval: u32,
        reply: Reply<Result<(), Error>>,
    },
    Stop {
        deadline: Instant,
        reply: Reply<bool>,
    },
}

/// What `profiler-io` is asked to do.
pub(super) enum Task {
    Export {
        window: Box<Window>,
    },
    Capture {
        window: Box<Window>,
        reply: CaptureReply,
    },
    /// Sends what is known of the heap.
    ExportHeap,
    /// Tells what is known of the heap.
    Heap {
        asked: Box<HeapAsked>,
        reply: CaptureReply,
    },
    /// Sets an interval of the heap's, behind the profile of what is forgotten with it.
    SetHeapInterval {
        lg_interval: u32,
        reply: Reply<Result<(), Error>>,
    },
    Flush {
        deadline: Instant,
        reply: Reply<bool>,
    },
    Stop {
        deadline: Instant,
        reply: Reply<bool>,
    },
}

impl Task {
    /// Answers a task that cannot be taken on.
    pub(super) fn refuse(self) {
        match self {
            Self::Export { .. } | Self::ExportHeap => {}
            Self::Capture { reply, .. } | Self::Heap { reply, .. } => reply.answer(Err(Refusal::TooMany)),
            Self::SetHeapInterval { reply, .. } => {
                let why = "profiles that are to leave with the interval before wait to be made";
                reply.answer(Err(Error::misuse("Profiler::set_heap_interval", why, "ask again")));
            }
            Self::Flush { reply, .. } | Self::Stop { reply, .. } => reply.answer(false),
        }
    }
}

/// Which profile of the heap is asked for.
#[derive(Debug)]
pub(super) struct HeapAsked {
    pub(super) since: Since,
    /// When the mark was made.
    pub(super) began: Option<(Instant, SystemTime)>,
    /// The type that viewers of pprof show first, where it is not memory in use.
    pub(super) first: Option<&'static str>,
}

impl HeapAsked {
    /// All that was allocated since the start, and what lives.
    pub(super) fn in_all(first: Option<&'static str>) -> Self {
        Self { since: Since::Start, began: None, first }
    }

    /// What was allocated since a mark that is made now, and what lives then.
    pub(super) fn from(mark: Mark) -> Self {
        Self { since: Since::Mark(mark), began: Some((Instant::now(), SystemTime::now())), first: None }
    }
}

/// Where the outcome of a capture goes.
pub(super) struct CaptureReply {
    answer: Box<dyn FnOnce(Result<ProfileSet, Refusal>) + Send>,
    asker: Weak<()>,
}

impl CaptureReply {
    /// To `answer`, for as long as the asker lives: then nobody waits for it any more.
    pub(super) fn new(asker: &Arc<()>, answer: impl FnOnce(Result<ProfileSet, Refusal>) + Send + 'static) -> Self {
        Self { answer: Box::new(answer), asker: Arc::downgrade(asker) }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.asker.strong_count() > 0
    }

    pub(super) fn answer(self, captured: Result<ProfileSet, Refusal>) {
        (self.answer)(captured);
    }
}

/// Why a capture is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    TooMany,
    Off,
    /// The host has closed the descriptors: see [`CLOSED`].
    Closed,
    /// There are no heap profiles in this program.
    NoHeap,
}

/// Where the answer to a question goes.
pub(super) struct Reply<T>(mpsc::Sender<T>);

impl<T> Reply<T> {
    /// A reply, and where it arrives.
    pub(super) fn new() -> (Self, mpsc::Receiver<T>) {
        let (sender, answer) = mpsc::channel();
        (Self(sender), answer)
    }

    /// Answers; whoever asked may have given up waiting.
    pub(super) fn answer(self, value: T) {
        if self.0.send(value).is_err() {
            tracing::debug!("nobody waits for this answer any more");
        }
    }
}
