//! The forms in which profiles are sent. A destination names its form; a set is written once for all destinations of one form.
//!
//! In: a part of a set, small enough for a request. Out: the body of one request. Pure.

use std::io;
use std::sync::Arc;

use profiler_proto::split::request_bytes;
use profiler_proto::{ProfileSet, otlp};

use super::body::Body;
use super::files::batch::{self, Batch};
use super::parca;
use super::protocol::Compression;
use super::push;

const OTLP: u8 = 1;
const OTLP_GZIP: u8 = 2;
const PYROSCOPE: u8 = 3;
const FILES: u8 = 4;
const PARCA: u8 = 5;

/// How bodies of the form with this number are compressed.
pub(super) fn compression_of(number: u8) -> Compression {
    match number {
        OTLP | FILES => Compression::None,
        _ => Compression::Gzip,
    }
}

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
            Self::Otlp(_) | Self::Parca(_) => request_bytes(part) <= bytes,
            Self::Pyroscope(_) => push::fits(part, bytes),
            Self::Files => batch::fits(part, bytes),
        }
    }

    /// The number of this form on disk: the format of the spool, never to be changed.
    pub(super) fn number(&self) -> u8 {
        match self {
            Self::Otlp(Compression::Gzip) => OTLP_GZIP,
            Self::Otlp(Compression::None) => OTLP,
            Self::Pyroscope(_) => PYROSCOPE,
            Self::Files => FILES,
            Self::Parca(_) => PARCA,
        }
    }

    /// The numbers of forms that a destination of this one takes from disk: it may have been set to another one since.
    pub(super) fn taken(&self) -> Vec<u8> {
        match self {
            Self::Otlp(_) => vec![OTLP_GZIP, OTLP],
            other => vec![other.number()],
        }
    }

    /// What tells this form from others that a destination of it could take from disk, and is not to: the labels in it.
    pub(super) fn key(&self) -> u32 {
        let text = match self {
            Self::Pyroscope(labels) => format!("{labels:?}"),
            Self::Parca(labels) => format!("{labels:?}"),
            Self::Otlp(_) | Self::Files => self.number().to_string(),
        };
        crc32fast::hash(text.as_bytes())
    }

    /// Whether peers take profiles of any age: Pyroscope takes none that began an hour ago.
    pub(super) fn is_ageless(&self) -> bool {
        !matches!(self, Self::Pyroscope(_))
    }

    /// Bytes that the longest request may have, where that is more than the least that a queue may hold.
    pub(super) fn longest(&self) -> usize {
        match self {
            Self::Parca(_) => parca::LONGEST,
            _ => 0,
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
