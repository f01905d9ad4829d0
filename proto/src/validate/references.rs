//! Indices into the dictionary: whether they are in range, and what nobody refers to.

use super::{Report, Rule};
use crate::otlp::messages::ProfilesDictionary;

/// A table of the dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Mapping,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Stack,
}

impl Table {
    const ALL: [Self; 7] =
        [Self::Mapping, Self::Location, Self::Function, Self::Link, Self::String, Self::Attribute, Self::Stack];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mapping => "mapping_table",
            Self::Location => "location_table",
            Self::Function => "function_table",
            Self::Link => "link_table",
            Self::String => "string_table",
            Self::Attribute => "attribute_table",
            Self::Stack => "stack_table",
        }
    }
}

/// A dictionary, and which of its elements were referred to.
pub(super) struct References<'a> {
    pub(super) dictionary: &'a ProfilesDictionary,
    used: [Vec<bool>; 7],
}

impl<'a> References<'a> {
    pub(super) fn new(dictionary: &'a ProfilesDictionary) -> Self {
        let d = dictionary;
        let lengths = [
            d.mapping_table.len(),
            d.location_table.len(),
            d.function_table.len(),
            d.link_table.len(),
            d.string_table.len(),
            d.attribute_table.len(),
            d.stack_table.len(),
        ];
        Self { dictionary, used: lengths.map(|len| vec![false; len]) }
    }

    /// Notes a reference; one out of range is reported.
    pub(super) fn to(&mut self, table: Table, index: i32, path: &str, report: &mut Report) {
        // An empty table is reported as such.
        let used = &mut self.used[table as usize];
        match usize::try_from(index).ok().and_then(|index| used.get_mut(index)) {
            Some(used) => *used = true,
            None if index == 0 => {}
            None => report.add(path, Rule::OutOfRange),
        }
    }

    /// The string at `index`, `""` for one out of range.
    pub(super) fn text(&self, index: i32) -> &'a str {
        let text = usize::try_from(index).ok().and_then(|index| self.dictionary.string_table.get(index));
        text.map_or("", String::as_str)
    }

    /// Reports what was never referred to.
    pub(super) fn report_orphans(&self, report: &mut Report) {
        for table in Table::ALL {
            for (i, _) in self.used[table as usize].iter().enumerate().skip(1).filter(|(_, used)| !**used) {
                report.add(format!("dictionary.{}[{i}]", table.name()), Rule::Orphan);
            }
        }
    }
}
