//! What samples say of libraries that took each other's place, beside what really ran.
//!
//! In: profiles of a program that says by the tag `library` which one it works in. Out: how much of that is named right,
//! wrong, or by number. Pure.

use profiler_proto::model::ProfileSet;
use serde::{Deserialize, Serialize};

use crate::tally::{Seen, samples_of};

/// The libraries.
pub const LIBRARIES: [&str; 2] = ["alpha", "beta"];

/// What is known of a frame in a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The function: all of them begin with the library's name.
    Function,
    /// The file and an offset, as without symbols.
    File,
}

impl Known {
    fn begins(self, library: &str) -> String {
        match self {
            Self::Function => format!("{library}_"),
            Self::File => format!("lib{library}.so+"),
        }
    }
}

/// Weight of samples under the tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Some frame is in the library, and the stack is whole.
    pub right: i64,
    /// Some frame is in the other one, or the tag is missing.
    pub wrong: i64,
    /// The leaf is shown by number, or the stack is not whole.
    pub unknown: i64,
    /// One that is wrong.
    pub example: Option<String>,
}

impl Verdict {
    /// Of all on-CPU samples in `sets`, where so much is known of a frame.
    pub fn of<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>, known: Known) -> Self {
        Self::of_samples(sets.into_iter().flat_map(samples_of), known)
    }

    /// Of these samples.
    pub fn of_samples(samples: impl IntoIterator<Item = Seen>, known: Known) -> Self {
        let mut verdict = Self::default();
        for sample in samples {
            let of = |library: &&str| sample.stack.iter().any(|name| name.starts_with(&known.begins(library)));
            let named: Vec<&str> = LIBRARIES.into_iter().filter(of).collect();
            let ran = LIBRARIES.into_iter().find(|library| sample.tags.contains(&format!("library={library}")));
            let leaf = sample.stack.first().map_or("", String::as_str);
            let is_number = leaf.starts_with("[unknown]+") || (named.is_empty() && leaf.starts_with("lib"));
            let is_torn = sample.stack.iter().any(|name| name == "[stack incomplete]");
            if named.iter().any(|library| Some(*library) != ran) {
                verdict.wrong += sample.weight;
                verdict.example = Some(format!("{sample:?}"));
            } else if ran.is_some() && (is_number || is_torn) {
                verdict.unknown += sample.weight;
            } else if !named.is_empty() {
                verdict.right += sample.weight;
            }
        }
        verdict
    }
}
