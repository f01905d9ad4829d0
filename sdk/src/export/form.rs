//! The forms in which profiles are sent. A destination names its form; a set is written once for all destinations of one form.
//!
//! In: a part of a set, small enough for a request. Out: the body of one request. Pure.

use std::io;
use std::sync::Arc;

use profiler_proto::split::fits;
use profiler_proto::{ProfileSet, otlp};

use super::body::Body;
use super::files::batch::{self, Batch};
use super::parca;
use super::protocol::Compression;
use super::push;

/// What a destination takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// A request of OTLP, over gRPC and HTTP alike.
    Otlp(Compression),
    /// A request of Pyroscope's push.v1, with these labels over those of the process.
    Pyroscope(Arc<[(String, String)]>),
    /// A pprof file with its name.
    Files,
    /// A `WriteRaw` of Parca, whose series all have these labels.
    Parca(Arc<parca::Labels>),
}

impl Form {
    /// Whether a request of at most so many bytes holds `part`, which is compact.
    pub(super) fn fits(&self, part: &ProfileSet, bytes: usize) -> bool {
        match self {
            Self::Otlp(_) | Self::Parca(_) => fits(part, bytes),
            Self::Pyroscope(_) => push::fits(part, bytes),
            Self::Files => batch::fits(part, bytes),
        }
    }

    /// Writes `part` in this form.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn write(&self, part: &ProfileSet) -> io::Result<Body> {
        let samples = part.profiles.iter().map(|profile| profile.samples.len()).sum();
        match self {
            Self::Otlp(compression) => Body::new(&otlp::encode_compact(part), samples, *compression),
            Self::Pyroscope(labels) => Body::new(&push::request(part, labels), samples, Compression::Gzip),
            // Each file is compressed by itself.
            Self::Files => Body::new(&Batch::of(part), samples, Compression::None),
            Self::Parca(labels) => {
                let (request, untagged) = parca::request(part, labels);
                Ok(Body::new(&request, samples, Compression::Gzip)?.without_tags(untagged))
            }
        }
    }
}
