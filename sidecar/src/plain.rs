//! Texts of others, as a terminal may show them.
//!
//! In: a name, a path, an error that may have one in it. Out: the same without control characters. Leaf module.

/// A text without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same, of a text that may have several lines: those behind the first are indented, so that none passes for another text.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a terminal is told nothing to do, and that no line of a text passes for another text.
    #[test]
    fn a_terminal_is_told_nothing_to_do() {
        assert_eq!(plain("main.\u{1b}[31mred\n"), "main.\u{fffd}[31mred\u{fffd}");
        assert_eq!(plain_lines("a\nb\u{1b}\tc"), "a\n    b\u{fffd}\u{fffd}c");
    }
}
