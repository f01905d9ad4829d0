//! The memory of the target as the capture reads it: pages kept for the length of one capture, words and records out of them.
//!
//! In: addresses that the target's memory named. Out: bytes, or nothing where there are none. Which process it is stands behind [`Memory`], so that
//! forged memory can be read in tests. On the thread that captures; bounded: at most [`PAGES`] pages are kept.

use profiler_proto::hash::Map;

use crate::target::{self, Fault, Piece};

/// Bytes of a page; smaller or equal to any page of a target, and a divisor of it.
const PAGE: usize = 4096;
/// Most pages that are kept at once: 4 MiB.
const PAGES: usize = 1024;
/// Pages that are read at once: the one asked for and those before it, for lists run from the newest record to the oldest.
const AHEAD: u64 = 16;

/// Memory that can be read in pieces.
pub trait Memory {
    /// Reads all `pieces`, each as far as it is there.
    ///
    /// # Errors
    /// When the process is gone, or does not let us; memory that is not there is no error.
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault>;

    /// Fills `buffer` from `address` on; whether all of it was there.
    ///
    /// # Errors
    /// As [`Self::read_many`].
    fn fill(&self, address: u64, buffer: &mut [u8]) -> Result<bool, Fault> {
        let mut pieces = [Piece::new(address, buffer)];
        self.read_many(&mut pieces)?;
        let [piece] = pieces;
        Ok(piece.is_whole())
    }

    /// The word at `address`.
    ///
    /// # Errors
    /// As [`Self::read_many`].
    fn word(&self, address: u64) -> Result<Option<u64>, Fault> {
        let mut bytes = [0; 8];
        Ok(self.fill(address, &mut bytes)?.then(|| u64::from_le_bytes(bytes)))
    }
}

impl Memory for target::Memory {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        target::Memory::read_many(self, pieces)
    }
}

/// Pages of a memory, read when they are needed and kept.
#[derive(Debug)]
pub(super) struct Pages<'m, M: ?Sized> {
    memory: &'m M,
    kept: Map<u64, Option<Box<[u8]>>>,
}

impl<'m, M: Memory + ?Sized> Pages<'m, M> {
    pub(super) fn new(memory: &'m M) -> Self {
        Self { memory, kept: Map::default() }
    }

    /// Fills `into` from `address` on; whether all of it was there.
    pub(super) fn fill(&mut self, address: u64, into: &mut [u8]) -> Result<bool, Fault> {
        if address.checked_add(into.len() as u64).is_none() {
            return Ok(false);
        }
        let (mut at, mut rest) = (address, into);
        while !rest.is_empty() {
            let (number, inside) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let (part, behind) = rest.split_at_mut(rest.len().min(PAGE - inside));
            let Some(page) = self.page(number)? else { return Ok(false) };
            let Some(bytes) = page.get(inside..inside + part.len()) else { return Ok(false) };
            part.copy_from_slice(bytes);
            at += part.len() as u64;
            rest = behind;
        }
        Ok(true)
    }

    /// `count` words from `address` on.
    pub(super) fn words(&mut self, address: u64, count: usize) -> Result<Option<Vec<u64>>, Fault> {
        let mut bytes = vec![0; count * 8];
        Ok(self.fill(address, &mut bytes)?.then(|| words(&bytes)))
    }

    fn page(&mut self, number: u64) -> Result<Option<&[u8]>, Fault> {
        if !self.kept.contains_key(&number) {
            self.load(number)?;
        }
        Ok(self.kept.get(&number).and_then(|page| page.as_deref()))
    }

    /// Reads the page of this number, and those before it that are not kept yet.
    fn load(&mut self, number: u64) -> Result<(), Fault> {
        if self.kept.len() + AHEAD as usize > PAGES {
            self.kept.clear();
        }
        let first = number.saturating_sub(AHEAD - 1);
        let numbers: Vec<u64> = (first..=number).filter(|number| !self.kept.contains_key(number)).collect();
        let mut buffers = vec![[0; PAGE]; numbers.len()];
        let mut pieces: Vec<Piece<'_>> = numbers
            .iter()
            .zip(&mut buffers)
            .map(|(number, buffer)| Piece::new(number.wrapping_mul(PAGE as u64), &mut buffer[..]))
            .collect();
        self.memory.read_many(&mut pieces)?;
        let there: Vec<bool> = pieces.iter().map(Piece::is_whole).collect();
        for ((number, buffer), there) in numbers.iter().zip(buffers).zip(there) {
            self.kept.insert(*number, there.then(|| buffer.into()));
        }
        Ok(())
    }
}

/// The words of `bytes`; a remainder is left out. Targets are little-endian, as [`crate::elf`] makes sure.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The word at `offset` of a record; 0 behind its end.
pub(super) fn word_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}
