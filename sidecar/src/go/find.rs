//! Functions by their names: for whoever looks for a function of the runtime in a program without symbols; and what all of them show.
//!
//! Walks from end to end, through the names and through the functions, for as many names as are asked for; nothing is kept.

use super::pclntab::Table;

/// Most bytes of names that one search reads: a sparse file may pretend to have any number. The largest programs have some 40 MiB.
const MOST: u64 = 64 << 20;

impl Table {
    /// The entries of functions by their names.
    pub(super) fn find_all(&self, wanted: &[&str]) -> Vec<Option<u64>> {
        let offsets = self.offsets_of(wanted);
        let mut found = vec![None; wanted.len()];
        let walk = self.elf.walk();
        for number in (0..self.header.functions).take_while(|_| walk.goes_on()) {
            let Some(at) = self.word(self.header.lines, 2 * u64::from(number) + 1) else { break };
            let Some(name) = self.word(self.header.lines.saturating_add(u64::from(at)), 1) else { continue };
            for (found, offset) in found.iter_mut().zip(&offsets) {
                if found.is_none() && *offset == Some(name) {
                    *found = self.numbered(number).map(|function| function.entry);
                }
            }
            if found.iter().zip(&offsets).all(|(found, offset)| found.is_some() || offset.is_none()) {
                break;
            }
        }
        found
    }

    /// The highest number of a function that the runtime knows; `None` where not all can be looked at.
    pub(super) fn highest_id(&self) -> Option<u8> {
        let walk = self.elf.walk();
        let mut numbers = (0..self.header.functions).map(|number| {
            walk.goes_on().then_some(())?;
            self.numbered(number).map(|function| function.func_id)
        });
        numbers.try_fold(0, |highest, id| Some(id?.max(highest)))
    }

    /// Where the names are among the names of functions.
    fn offsets_of(&self, wanted: &[&str]) -> Vec<Option<u32>> {
        let mut offsets = vec![None; wanted.len()];
        let mut base = self.header.names;
        let end = self.header.units.min(base.saturating_add(MOST));
        let mut chunk = vec![0; 64 << 10];
        while base < end && offsets.contains(&None) {
            let len = (end - base).min(chunk.len() as u64) as usize;
            let bytes = &mut chunk[..len];
            if self.read(base, bytes).is_none() {
                break;
            }
            let whole = bytes.iter().rposition(|byte| *byte == 0).map_or(len, |last| last + 1);
            let mut at = base - self.header.names;
            for name in bytes[..whole].split(|byte| *byte == 0) {
                for (offset, _) in offsets.iter_mut().zip(wanted).filter(|(_, wanted)| wanted.as_bytes() == name) {
                    offset.get_or_insert(at as u32);
                }
                at += name.len() as u64 + 1;
            }
            base += whole as u64;
        }
        offsets
    }
}
