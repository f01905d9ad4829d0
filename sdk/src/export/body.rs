//! An encoded message, in one piece of memory for HTTP and gRPC: behind the five bytes that gRPC puts before it.
//!
//! In: a protobuf message. Out: its bytes, compressed or not, to be sent as often as it takes; clones share them. Pure.
//!
//! Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), "Length-Prefixed-Message": a compressed flag, then the length as big-endian u32.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzEncoder;
use prost::Message;

use super::protocol::Compression;

/// The body of a request.
#[derive(Debug, Clone)]
pub(super) struct Body {
    framed: Bytes,
    /// Bytes of the message before compression.
    pub(super) uncompressed: usize,
    /// How the message is compressed.
    pub(super) compression: Compression,
    /// Samples in all of its profiles.
    pub(super) samples: usize,
    /// Those of them whose tags were left out, for there were too many sets of tags for the form.
    pub(super) untagged: usize,
    /// How much older than itself what is in it is to its peer, which counts from the begin of a profile.
    pub(super) lasted: Duration,
}

/// Bytes before the message.
const PREFIX: usize = 5;

/// How hard gzip tries: with the level that is customary, 6, a request takes a quarter more time and has as much as a two-hundredth fewer bytes.
const LEVEL: u32 = 5;

impl Body {
    /// Encodes and compresses `message`, which holds `samples` samples.
    ///
    /// # Errors
    /// If the message cannot be compressed, or is longer than gRPC's 32-bit length can say.
    pub(super) fn new(message: &impl Message, samples: usize, compression: Compression) -> io::Result<Self> {
        let bytes = message.encode_to_vec();
        Self::written(bytes.len(), |out| out.write_all(&bytes), samples, compression)
    }

    /// Compresses a message of `uncompressed` bytes that is written piece by piece.
    ///
    /// # Errors
    /// As of [`Body::new`].
    pub(super) fn written(
        uncompressed: usize,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        samples: usize,
        compression: Compression,
    ) -> io::Result<Self> {
        let mut framed = vec![0; PREFIX];
        match compression {
            Compression::None => {
                framed.reserve_exact(uncompressed);
                write(&mut framed)?;
            }
            Compression::Gzip => {
                // More than most need: growing step by step would take more memory for a moment than all else here.
                framed.reserve_exact(uncompressed / 3);
                let mut encoder = GzEncoder::new(framed, flate2::Compression::new(LEVEL));
                write(&mut encoder)?;
                framed = encoder.finish()?;
            }
        }
        let length = u32::try_from(framed.len() - PREFIX).map_err(io::Error::other)?;
        framed[..PREFIX].copy_from_slice(&prefix(compression, length));
        // Without the room that is left in it: what waits is counted by its length.
        let framed = framed.into_boxed_slice().into();
        Ok(Self { framed, uncompressed, compression, samples, untagged: 0, lasted: Duration::ZERO })
    }

    /// The body whose `message` was encoded before; `None` if it is longer than gRPC's length can say.
    pub(super) fn again(message: &[u8], compression: Compression, uncompressed: usize, samples: usize) -> Option<Self> {
        let length = u32::try_from(message.len()).ok()?;
        let framed = [&prefix(compression, length)[..], message].concat();
        Some(Self { framed: framed.into(), uncompressed, compression, samples, untagged: 0, lasted: Duration::ZERO })
    }

    /// The same, so many of whose samples lack their tags.
    pub(super) fn without_tags(self, untagged: usize) -> Self {
        Self { untagged, ..self }
    }

    /// The same, which its peer takes to be older by so much.
    pub(super) fn lasting(self, lasted: Duration) -> Self {
        Self { lasted, ..self }
    }

    /// What is to be said of it even if it is accepted.
    pub(super) fn warning(&self) -> Option<String> {
        let (untagged, samples) = (self.untagged, self.samples);
        (untagged > 0)
            .then(|| format!("too many sets of tags: {untagged} of {samples} samples were sent without theirs"))
    }

    /// What HTTP sends: the message, compressed or not.
    pub(super) fn message(&self) -> Bytes {
        self.framed.slice(PREFIX..)
    }

    /// What gRPC sends: the same, behind its prefix.
    pub(super) fn framed(&self) -> Bytes {
        self.framed.clone()
    }

    /// Bytes of memory that it takes.
    pub(super) fn len(&self) -> usize {
        self.framed.len()
    }
}

/// What stands before a message of so many bytes.
fn prefix(compression: Compression, length: u32) -> [u8; PREFIX] {
    let [a, b, c, d] = length.to_be_bytes();
    [u8::from(compression == Compression::Gzip), a, b, c, d]
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Check that both frames carry flag and length, and that a body says how long its message is without compression.
    #[test]
    fn frames_say_how_and_how_long() {
        let text = "profile".repeat(100);
        let [plain, gzip] =
            [Compression::None, Compression::Gzip].map(|compression| Body::new(&text, 3, compression).unwrap());
        assert_eq!(plain.message(), text.encode_to_vec());
        assert_eq!(plain.framed()[..5], [0, 0, 0, 2, 191]);
        assert_eq!((gzip.framed()[0], gzip.framed()[4] as usize), (1, gzip.len() - 5));
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&gzip.message()[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, text.encode_to_vec());
        for body in [&plain, &gzip] {
            let again = Body::again(&body.message(), body.compression, body.uncompressed, body.samples).unwrap();
            assert_eq!((again.framed(), again.compression), (body.framed(), body.compression));
        }
        assert_eq!([plain, gzip].map(|body| (body.uncompressed, body.samples)), [(703, 3); 2]);
    }
}
