//! The forms in which profiles are sent. A destination names its form; a set is written once for all destinations of one form.
//!
//! In: a part of a set. Out: whether it is small enough for a request, and the body of that, written once. Pure.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use profiler_proto::split::fits;
use profiler_proto::{ProfileSet, otlp};

use super::body::Body;
use super::files::batch::Batch;
use super::parca;
use super::protocol::Compression;
use super::push::{self, PushRequest};

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
    /// Writes `part`, which is compact, if a request of at most so many bytes before compression holds it.
    pub(super) fn draft(&self, part: &ProfileSet, bytes: usize) -> Option<Draft> {
        match self {
            Self::Otlp(_) | Self::Parca(_) => fits(part, bytes).then_some(Draft::Later),
            Self::Pyroscope(labels) => push::request(part, labels, bytes).map(Draft::Pyroscope),
            Self::Files => Batch::of(part, bytes).map(Draft::Files),
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

    /// The body of a request with `part`, of which `draft` was written.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn body(&self, part: &ProfileSet, draft: Draft) -> io::Result<Body> {
        let samples = part.profiles.iter().map(|profile| profile.samples.len()).sum();
        match (self, draft) {
            (Self::Otlp(compression), _) => {
                let request = otlp::Request::of(part);
                Body::written(request.bytes(), |out| request.write(out), samples, *compression)
            }
            (Self::Parca(labels), _) => {
                let (request, untagged) = parca::request(part, labels);
                Ok(Body::new(&request, samples, Compression::Gzip)?.without_tags(untagged))
            }
            (_, Draft::Pyroscope(request)) => {
                Ok(Body::new(&request, samples, Compression::Gzip)?.lasting(duration(part)))
            }
            (_, Draft::Files(batch)) => Body::new(&batch.compressed(), samples, Compression::None),
            (form, Draft::Later) => Err(io::Error::other(format!("a draft is not of the form {form:?}"))),
        }
    }
}

/// A part in a form, before compression.
#[derive(Debug)]
pub(super) enum Draft {
    Pyroscope(PushRequest),
    Files(Batch),
    /// It is small enough, and not written yet: its size is known without that.
    Later,
}

/// How long the longest profile of `part` lasted.
fn duration(part: &ProfileSet) -> Duration {
    Duration::from_nanos(part.profiles.iter().map(|profile| profile.duration_nanos).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use profiler_proto::model::{Kind, Profile, Sample};
    use profiler_proto::split::request_bytes;
    use prost::Message;

    use super::*;

    /// A profile of one sample, which lasted for ten minutes.
    fn part() -> ProfileSet {
        let mut set = ProfileSet::default();
        let kind = Kind::cpu(&mut set.dictionary, 10_000_000);
        let samples = vec![Sample { value: 1, ..Sample::default() }];
        set.profiles = vec![Profile { kind, samples, duration_nanos: 600_000_000_000, ..Profile::default() }];
        set.compacted()
    }

    fn message(body: &Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&body.message()[..]).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Check that what was measured is what is sent, not written a second time: the random id of a request, and that in the name of a file, are
    /// those of the draft.
    #[test]
    fn what_was_measured_is_what_is_sent() {
        let (part, pyroscope) = (part(), Form::Pyroscope(Arc::from([])));
        let Some(Draft::Pyroscope(request)) = pyroscope.draft(&part, usize::MAX) else { panic!("it is small") };
        let expected = request.encode_to_vec();
        assert_eq!(message(&pyroscope.body(&part, Draft::Pyroscope(request)).unwrap()), expected);
        let Some(Draft::Files(batch)) = Form::Files.draft(&part, usize::MAX) else { panic!("it is small") };
        let expected = batch.clone().compressed();
        let body = Form::Files.body(&part, Draft::Files(batch)).unwrap();
        assert_eq!(Batch::decode(body.message()).unwrap(), expected);
    }

    /// Check that a request at its bound is sent, with what the encoder says, and none above it, in whatever form.
    #[test]
    fn a_request_at_its_bound_is_sent() {
        let (part, form) = (part(), Form::Otlp(Compression::None));
        let bytes = request_bytes(&part);
        let draft = form.draft(&part, bytes).unwrap();
        let body = form.body(&part, draft).unwrap();
        let expected = otlp::encode_to_vec(&part);
        assert_eq!((body.uncompressed, &body.message()[..]), (expected.len(), &expected[..]));
        assert!(form.draft(&part, bytes - 1).is_none());
        let too_small = [form, Form::Files, Form::Pyroscope(Arc::from([]))].map(|form| form.draft(&part, 10).is_none());
        assert_eq!(too_small, [true; 3]);
    }

    /// Check that a form whose peer counts from the begin of a profile says how much older than itself it is.
    #[test]
    fn age_counts_from_the_begin_where_the_peer_does() {
        let part = part();
        let lasted = |form: &Form| form.body(&part, form.draft(&part, usize::MAX).unwrap()).unwrap().lasted;
        let lasted =
            [Form::Pyroscope(Arc::from([])), Form::Otlp(Compression::Gzip), Form::Files].map(|form| lasted(&form));
        assert_eq!(lasted, [Duration::from_secs(600), Duration::ZERO, Duration::ZERO]);
    }
}
