//! Bodies: collected, decompressed, never beyond their bounds.
//!
//! In: the frames of a request. Out: its bytes, or why they cannot be had. Decompressing runs on the thread of the connection, for a time
//! that the bound of the content bounds.

use std::io::Read as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::Bounds;

/// Why a body cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// More bytes than a body may have.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// More bytes after decompression than a body may have.
    #[error("the body is longer than {0} bytes when it is decompressed")]
    TooLongInside(usize),
    /// It is not what it says to be compressed with.
    #[error("the body is not valid gzip")]
    NotGzip,
    /// It did not come in time.
    #[error("the body did not arrive within {0:?}")]
    TooSlow(Duration),
    /// Nothing of it came for too long.
    #[error("nothing of the body came for {0:?}")]
    Stalled(Duration),
    /// The connection ended.
    #[error("the connection ended within the body")]
    Broken,
}

/// All of `body`, of at most `most` bytes, in the time that `bounds` give it.
pub(super) async fn collect(body: Incoming, most: usize, bounds: Bounds) -> Result<Bytes, Refused> {
    let Bounds { patience, pause, .. } = bounds;
    if body.size_hint().lower() > most as u64 {
        return Err(Refused::TooLong(most));
    }
    timeout(patience, collect_frames(body, most, pause)).await.unwrap_or(Err(Refused::TooSlow(patience)))
}

async fn collect_frames(mut body: Incoming, most: usize, pause: Duration) -> Result<Bytes, Refused> {
    let mut collected = BytesMut::new();
    while let Some(frame) = timeout(pause, body.frame()).await.map_err(|_| Refused::Stalled(pause))? {
        let Ok(data) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
        if data.len() > most - collected.len() {
            return Err(Refused::TooLong(most));
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}

/// What was compressed, of at most `most` bytes.
pub(super) fn decompress(compressed: &[u8], most: usize) -> Result<Bytes, Refused> {
    let mut plain = Vec::new();
    let bounded = most as u64 + 1;
    MultiGzDecoder::new(compressed).take(bounded).read_to_end(&mut plain).map_err(|_| Refused::NotGzip)?;
    if plain.len() > most { Err(Refused::TooLongInside(most)) } else { Ok(plain.into()) }
}
