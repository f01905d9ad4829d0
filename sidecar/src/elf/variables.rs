//! Variables by a file's symbol table.
//!
//! In: the names of a few. Out: their addresses. The table is read once from end to end, and nothing of it is kept. Source: elf(5), "String and
//! symbol tables".

use super::symbols::{ENTRY, Table};
use super::{File, Record};

impl File {
    /// Where the variables of these names are, as the file counts addresses; `None` for those that no symbol names.
    #[must_use]
    pub fn variables(&self, wanted: &[&str]) -> Vec<Option<u64>> {
        let mut found = vec![None; wanted.len()];
        let Ok(Some((table, names))) = Table::of(self) else { return found };
        // A longer name is none of them.
        let most = wanted.iter().map(|name| name.len() + 1).max().unwrap_or(0);
        let walk = self.walk();
        let name = |at: u32| {
            let rest = names.size.checked_sub(u64::from(at))?;
            self.text_at(names.offset.checked_add(u64::from(at))?, rest.min(most as u64) as usize)
        };
        let each = |entry: &Record<ENTRY>, _| {
            let name = if is_variable(entry) && walk.goes_on() { name(entry.u32::<0>()) } else { None };
            for (found, _) in found.iter_mut().zip(wanted).filter(|(_, wanted)| name.as_deref() == Some(wanted)) {
                found.get_or_insert(entry.u64::<8>());
            }
        };
        // What a damaged table said before it ended is as true as the rest of the file.
        _ = table.entries(self, each);
        found
    }
}

/// Whether this file defines it, and it is no function. Fields: name, info, other, section, value, size.
fn is_variable(entry: &Record<ENTRY>) -> bool {
    const STT_OBJECT: u8 = 1;
    entry.u8::<4>() & 0xf == STT_OBJECT && entry.u16::<6>() != 0
}
