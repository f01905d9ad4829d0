//! Unpacks sections that were compressed, as distributions ship debug information.
//!
//! In: the packed bytes and the size that the file says they have. Out: exactly that many bytes, or an error. The caller
//! bounds the size; the memory is asked for first, so that a refusal is an error value.

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

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

/// What is being unpacked.
enum Stream {
    Zlib(Box<ZlibDecoder<Cursor>>),
    Zstd(Box<StreamingDecoder<Cursor, FrameDecoder>>),
}

impl Stream {
    fn new(packed: Cursor, packing: Packing) -> Option<Self> {
        match packing {
            Packing::Zlib => Some(Self::Zlib(Box::new(ZlibDecoder::new(packed)))),
            Packing::Zstd => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(ZSTD_WINDOW);
                Self::frame(packed, decoder)
            }
        }
    }

    fn frame(packed: Cursor, decoder: FrameDecoder) -> Option<Self> {
        StreamingDecoder::new_with_decoder(packed, decoder).ok().map(|frame| Self::Zstd(Box::new(frame)))
    }

    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::Zlib(decoder) => decoder,
            Self::Zstd(decoder) => decoder,
        }
    }

    /// What is behind the end of this stream: some linkers pack a section in several frames of zstd.
    fn following(self) -> Option<Self> {
        match self {
            Self::Zlib(_) => None,
            Self::Zstd(ended) => {
                let (packed, decoder) = ended.into_parts();
                Self::frame(packed, decoder)
            }
        }
    }
}

/// The `len` bytes that `packed` unpacks to.
pub(super) async fn unpack(packed: Cursor, packing: Packing, len: u64, pace: &mut Pace) -> Result<Vec<u8>, Unreadable> {
    let malformed = || Unreadable::Malformed(gimli::Error::Io);
    let mut unpacked = Vec::new();
    let size = usize::try_from(len).map_err(|_| malformed())?;
    unpacked.try_reserve_exact(size).map_err(|_| Unreadable::TooLarge("no memory for a compressed section"))?;
    let mut source = Stream::new(packed, packing).ok_or_else(malformed)?;
    while (unpacked.len() as u64) < len {
        let chunk = CHUNK.min(len - unpacked.len() as u64);
        let read = source.reader().take(chunk).read_to_end(&mut unpacked).map_err(|_| malformed())?;
        if read == 0 {
            source = source.following().ok_or_else(malformed)?;
        }
        if pace.step(64)? {
            pace.rest().await;
        }
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::super::bytes::Storage;
    use super::super::tests::run;
    use super::*;

    fn unpacked(packed: &[u8], len: u64) -> Option<Vec<u8>> {
        let packed = Storage::memory(packed.to_vec()).cursor(0, packed.len() as u64).unwrap();
        run(unpack(packed, Packing::Zstd, len, &mut Pace::default())).ok()
    }

    /// Check that a section is all of its frames, empty ones too, and that one which lacks some is refused.
    #[test]
    fn a_section_may_have_several_frames() {
        let parts =
            [vec![b'a'; 100_000], Vec::new(), (0..70_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect()];
        let frames = parts.each_ref().map(|part| compress_to_vec(&part[..], CompressionLevel::Fastest)).concat();
        let whole = parts.concat();
        assert!(unpacked(&frames, 170_000).is_some_and(|unpacked| unpacked == whole));
        assert!(unpacked(&frames, 50_000).is_some_and(|unpacked| unpacked == whole[..50_000]));
        assert_eq!((unpacked(&frames, 170_001), unpacked(&frames[..frames.len() - 9], 170_000)), (None, None));
    }
}
