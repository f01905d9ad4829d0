//! Unpacks sections that were compressed, as distributions ship debug information.
//!
//! In: the packed bytes and the size that the file says they have. Out: exactly that many bytes, or an error. The caller
//! bounds the size; the memory is asked for first, so that a refusal is an error value.

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::bytes::Cursor;
use super::pace::{Pace, Unreadable};

/// Bytes unpacked between two looks at the clock.
const CHUNK: u64 = 32 << 10;
/// Largest window of a zstd stream: what level 19 uses.
const ZSTD_WINDOW: u64 = 8 << 20;

/// How a section is compressed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Packing {
    Zlib,
    Zstd,
}

impl Packing {
    /// Source: elf(5), `ch_type`.
    pub(super) fn of(kind: u32) -> Result<Self, Unreadable> {
        match kind {
            1 => Ok(Self::Zlib),
            2 => Ok(Self::Zstd),
            _ => Err(Unreadable::Malformed(gimli::Error::UnsupportedOffset)),
        }
    }
}

/// The `len` bytes that `packed` unpacks to.
pub(super) async fn unpack(packed: Cursor, packing: Packing, len: u64, pace: &mut Pace) -> Result<Vec<u8>, Unreadable> {
    let malformed = || Unreadable::Malformed(gimli::Error::Io);
    let mut unpacked = Vec::new();
    let size = usize::try_from(len).map_err(|_| malformed())?;
    unpacked.try_reserve_exact(size).map_err(|_| Unreadable::TooLarge("no memory for a compressed section"))?;
    let mut source: Box<dyn Read> = match packing {
        Packing::Zlib => Box::new(ZlibDecoder::new(packed)),
        Packing::Zstd => {
            Box::new(StreamingDecoder::new_with_max_window_size(packed, ZSTD_WINDOW).map_err(|_| malformed())?)
        }
    };
    while (unpacked.len() as u64) < len {
        let chunk = CHUNK.min(len - unpacked.len() as u64);
        let read = source.by_ref().take(chunk).read_to_end(&mut unpacked).map_err(|_| malformed())?;
        if read == 0 {
            return Err(malformed());
        }
        if pace.step(64)? {
            pace.rest().await;
        }
    }
    Ok(unpacked)
}
