//! The other side of each profiler: what it sends to, played by this process.
//!
//! In: whose. Out: the URL that its program is told, and what arrived there. Serves on threads of its own until it is dropped.

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use crate::push::Server;
use crate::who::Who;

/// Where a profiler sends to.
pub(crate) enum Sink {
    /// It sends nothing.
    None,
    /// OTLP.
    Otlp(Receiver),
    /// Pyroscope's push.
    Pyroscope(Server),
}

impl Sink {
    /// Starts what `who` sends to.
    pub(crate) fn of(who: Who) -> Result<Self> {
        Ok(match who {
            Who::Nobody
            | Who::Off
            | Who::Pprof
            | Who::Jemalloc
            | Who::JemallocPprof
            | Who::BareHooks
            | Who::OpenTelemetry => Self::None,
            Who::Ours => Self::Otlp(Receiver::start()?),
            Who::Pyroscope => Self::Pyroscope(Server::start()?),
        })
    }

    /// What `who` is told of it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Otlp(receiver) => receiver.endpoint(),
            Self::Pyroscope(server) => server.url(),
        }
    }
}
