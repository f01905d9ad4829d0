//! Interned strings.

use super::table::{StringId, Table};

/// The strings of a dictionary; element 0 is `""`. See [`Table::intern_str`] and [`Table::text`].
pub type Strings = Table<Box<str>, StringId>;
