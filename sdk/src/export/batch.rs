//! One request, encoded once and shared by all destinations, and what becomes of it.
//!
//! In: an encoded OTLP message with the number of on-CPU stacks in it, and the verdict of each destination. Out: bytes
//! to send, and one entry in the ledger: exported at the first destination that acknowledged, lost when the last one
//! has given up. Verdicts come from any thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flate2::write::GzEncoder;
use profiler_proto::loss::Cause;
use prost::Message;

use super::protocol::Compression;
use crate::stats::Ledger;

/// One request on its way to all destinations.
#[derive(Debug)]
pub(super) struct Batch {
    /// On-CPU stacks in the body.
    stacks: u64,
    /// For destinations with [`Compression::None`]; the other form again where there is none.
    identity: Body,
    /// For destinations with [`Compression::Gzip`]; the other form again where there is none.
    gzip: Body,
    fate: Mutex<Fate>,
    ledger: Arc<Ledger>,
}

#[derive(Debug)]
struct Fate {
    /// Destinations that have not given their verdict.
    awaited: usize,
    /// Whether one has acknowledged it.
    exported: bool,
}

/// An encoded message, in one piece of memory for both transports: behind the five bytes that gRPC puts before it.
///
/// Source: gRPC over HTTP/2, "Length-Prefixed-Message": a compressed flag, then the length as big-endian u32.
#[derive(Debug, Clone)]
pub(super) struct Body {
    framed: Bytes,
}

/// Bytes before the message.
const PREFIX: usize = 5;

impl Batch {
    /// Encodes `message`, which holds `stacks` on-CPU stacks, in the forms that destinations with these compressions
    /// take; each of them will give one verdict.
    ///
    /// # Errors
    /// If the message cannot be compressed, or is longer than gRPC's 32-bit length can say.
    pub(super) fn encode(
        message: &impl Message,
        stacks: u64,
        compressions: &[Compression],
        ledger: Arc<Ledger>,
    ) -> io::Result<Self> {
        let plain = Body::identity(message)?;
        let gzip = if compressions.contains(&Compression::Gzip) { plain.gzip()? } else { plain.clone() };
        let identity = if compressions.contains(&Compression::None) { plain } else { gzip.clone() };
        let fate = Mutex::new(Fate { awaited: compressions.len(), exported: false });
        Ok(Self { stacks, identity, gzip, fate, ledger })
    }

    /// On-CPU stacks in the body.
    pub(super) fn stacks(&self) -> u64 {
        self.stacks
    }

    /// The body for a destination with `compression`, which [`Batch::encode`] was told of.
    pub(super) fn body(&self, compression: Compression) -> &Body {
        match compression {
            Compression::None => &self.identity,
            Compression::Gzip => &self.gzip,
        }
    }

    /// A destination acknowledged the body.
    pub(super) fn accepted(&self) {
        let mut fate = self.fate();
        fate.awaited = fate.awaited.saturating_sub(1);
        if !fate.exported {
            fate.exported = true;
            self.ledger.exported(self.stacks);
        }
    }

    /// A destination will never get it.
    pub(super) fn given_up(&self, cause: Cause) {
        let mut fate = self.fate();
        fate.awaited = fate.awaited.saturating_sub(1);
        if fate.awaited == 0 && !fate.exported {
            self.ledger.lost(self.stacks, cause);
        }
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        // Plain numbers, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body {
    /// What HTTP sends: the message, compressed or not.
    pub(super) fn message(&self) -> Bytes {
        self.framed.slice(PREFIX..)
    }

    /// What gRPC sends: the same, behind its prefix.
    pub(super) fn framed(&self) -> Bytes {
        self.framed.clone()
    }

    /// Whether the message is compressed by gzip.
    pub(super) fn is_gzip(&self) -> bool {
        self.framed.first() == Some(&1)
    }

    /// Bytes of memory that it takes.
    pub(super) fn len(&self) -> usize {
        self.framed.len()
    }

    fn identity(message: &impl Message) -> io::Result<Self> {
        let mut framed = Vec::with_capacity(PREFIX + message.encoded_len());
        framed.extend_from_slice(&[0; PREFIX]);
        message.encode(&mut framed).map_err(io::Error::other)?;
        Self::with_prefix(framed, 0)
    }

    fn gzip(&self) -> io::Result<Self> {
        let mut encoder = GzEncoder::new(vec![0; PREFIX], flate2::Compression::default());
        encoder.write_all(&self.framed[PREFIX..])?;
        Self::with_prefix(encoder.finish()?, 1)
    }

    /// Fills in the prefix of a message that stands behind room for it.
    fn with_prefix(mut framed: Vec<u8>, compressed: u8) -> io::Result<Self> {
        let length = u32::try_from(framed.len() - PREFIX).map_err(io::Error::other)?;
        framed[0] = compressed;
        framed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
        Ok(Self { framed: framed.into() })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;

    use profiler_proto::loss::{Degraded, Loss};

    use super::*;

    /// A ledger with `stacks` pending.
    pub(in crate::export) fn ledger(stacks: u64) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        ledger.enter(stacks, stacks, stacks, &Loss::default(), &Degraded::default());
        ledger
    }

    /// A batch of `stacks` stacks and about `bytes` bytes for as many uncompressed destinations.
    pub(in crate::export) fn batch(stacks: u64, bytes: usize, destinations: usize, ledger: &Arc<Ledger>) -> Batch {
        let compressions = vec![Compression::None; destinations];
        Batch::encode(&"x".repeat(bytes), stacks, &compressions, Arc::clone(ledger)).unwrap()
    }

    /// Check that stacks count as exported once, at the first acknowledgement, whatever the others say.
    #[test]
    fn the_first_acknowledgement_counts() {
        let ledger = ledger(10);
        let batch = batch(10, 8, 3, &ledger);
        batch.given_up(Cause::Rejected);
        assert_eq!(ledger.account().pending, 10);
        batch.accepted();
        batch.accepted();
        let account = ledger.account();
        assert_eq!((account.exported, account.pending, account.lost.total()), (10, 0, 0));
    }

    /// Check that stacks are lost with the cause of the last destination to give up.
    #[test]
    fn the_last_to_give_up_names_the_cause() {
        let ledger = ledger(10);
        let batch = batch(10, 8, 2, &ledger);
        batch.given_up(Cause::Rejected);
        batch.given_up(Cause::Unreachable);
        let account = ledger.account();
        assert_eq!((account.exported, account.pending), (0, 0));
        assert_eq!((account.lost.count(Cause::Unreachable), account.lost.total()), (10, 10));
    }

    /// Check that only the forms that somebody takes are kept, and that both frames carry flag and length.
    #[test]
    fn bodies_are_made_in_the_forms_that_are_taken() {
        let text = "profile".repeat(100);
        let both = [Compression::Gzip, Compression::None, Compression::Gzip];
        let batch = Batch::encode(&text, 1, &both, ledger(1)).unwrap();
        let (plain, gzip) = (batch.body(Compression::None), batch.body(Compression::Gzip));
        assert_eq!((plain.is_gzip(), gzip.is_gzip()), (false, true));
        assert_eq!(plain.message(), text.encode_to_vec());
        assert_eq!(plain.framed()[..5], [0, 0, 0, 2, 191]);
        assert_eq!((gzip.framed()[0], gzip.framed()[4] as usize), (1, gzip.len() - 5));
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&gzip.message()[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, text.encode_to_vec());

        let one = Batch::encode(&text, 1, &[Compression::Gzip], ledger(1)).unwrap();
        assert_eq!(one.body(Compression::None).len(), gzip.len(), "the form that nobody takes costs no memory");
    }
}
