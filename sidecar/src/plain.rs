//! Texts of others, as a terminal may show them.
//!
//! In: a name, a path, an error that may have one in it. Out: the same without control characters and without those that turn the direction of writing,
//! which could show a name as another one. Leaf module.

/// A text without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a character says which way others are written: the property `Bidi_Control`, Unicode Standard Annex #9, section 2.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
        assert_eq!(plain("main.\u{202e}der\u{2066}שלום"), "main.\u{fffd}der\u{fffd}שלום");
        assert_eq!(plain_lines("a\nb\u{1b}\tc"), "a\n    b\u{fffd}\u{fffd}c");
    }
}
