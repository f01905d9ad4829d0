//! What is in a spooled body, in the few bytes that stand beside it on disk.
//!
//! In: a body and what its profiles are counted as. Out: bytes for the spool; or, from bytes of this or an earlier process, what they
//! say, if they are of a version that is known. Pure.
//!
//! ```text
//! 0  u8  version, 1                                29 u32 bytes before compression
//! 1  u64 process that wrote it                     33 u32 samples
//! 9  u64 its number in that process                37 u32 samples without their tags
//! 17 u64 seconds since 1970, whence it is aged      41 u64 stacks, then profiles of each kind (6 × u64)
//! 25 u32 what tells it from others of its form
//! ```
//!
//! Little-endian. The spool has a checksum over them.

use std::time::{Duration, SystemTime};

use super::body::Body;
use crate::stats::Contents;

const VERSION: u8 = 1;
const BYTES: usize = 97;

/// What is known of a spooled body without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The process that made it, by a random number.
    pub(super) run: u64,
    /// Its number among what that process made.
    pub(super) serial: u64,
    /// From when on its peer counts its age, in seconds since 1970: when it was made, or before that.
    made: u64,
    /// What tells bodies of one form apart that are for different destinations.
    pub(super) key: u32,
    uncompressed: u32,
    samples: u32,
    untagged: u32,
    pub(super) contents: Contents,
}

impl Manifest {
    /// That of `body`, made now.
    pub(super) fn of(body: &Body, (run, serial): (u64, u64), key: u32, contents: Contents) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let made = now.saturating_sub(body.lasted).as_secs();
        let [uncompressed, samples, untagged] =
            [body.uncompressed, body.samples, body.untagged].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Self { run, serial, made, key, uncompressed, samples, untagged, contents }
    }

    /// As bytes.
    pub(super) fn encode(&self) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        [self.run, self.serial, self.made].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        [self.key, self.uncompressed, self.samples, self.untagged].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        self.contents.figures().iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.into()
    }

    /// What `bytes` say; `None` if they are of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, mut rest) = bytes.split_first()? else { return None };
        let [run, serial, made] = words(&mut rest)?;
        let [key, uncompressed, samples, untagged] = halves(&mut rest)?;
        let contents = Contents::from_figures(words(&mut rest)?);
        rest.is_empty().then_some(Self { run, serial, made, key, uncompressed, samples, untagged, contents })
    }

    /// How long ago it was made; nothing where the clock was set back since.
    pub(super) fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(Duration::from_secs(self.made))
    }

    /// Bytes before compression, samples, and those without their tags.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.uncompressed, self.samples, self.untagged].map(|n| n as usize)
    }
}

fn words<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let (first, rest) = bytes.split_first_chunk()?;
        (*word, *bytes) = (u64::from_le_bytes(*first), rest);
    }
    Some(words)
}

fn halves<const N: usize>(bytes: &mut &[u8]) -> Option<[u32; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let (first, rest) = bytes.split_first_chunk()?;
        (*word, *bytes) = (u32::from_le_bytes(*first), rest);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Compression;
    use super::*;

    /// Check that what is written is read, and that nothing else is: cut, lengthened, of another version.
    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let body = Body::new(&"x".repeat(1000), 5, Compression::Gzip).unwrap().without_tags(2);
        let contents = Contents::from_figures([1, 2, 3, 4, 5, 6, 7]);
        let manifest = Manifest::of(&body, (u64::MAX, 7), 9, contents);
        let bytes = manifest.encode();
        assert_eq!((Manifest::decode(&bytes), bytes.len()), (Some(manifest.clone()), BYTES));
        assert_eq!(manifest.sizes(), [1003, 5, 2]);
        assert!((0..BYTES).all(|length| Manifest::decode(&bytes[..length]).is_none()));
        assert_eq!(Manifest::decode(&[&bytes[..], &[0]].concat()), None);
        let other = [&[VERSION + 1], &bytes[1..]].concat();
        assert_eq!(Manifest::decode(&other), None);
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(manifest.made);
        let ages = [made + Duration::from_secs(60), made - Duration::from_secs(60)].map(|now| manifest.age(now));
        assert_eq!(ages, [Duration::from_secs(60), Duration::ZERO]);
    }
}
