//! Texts within a folded line.

use std::fmt::Write;

/// What stands escaped in every frame, beside control characters.
pub(super) const IN_FRAMES: &[char] = &['\\', ';'];
/// What stands escaped in the keys and values of tags, beside control characters.
pub(super) const IN_TAGS: &[char] = &['\\', ';', ',', '=', '{', '}'];

/// Appends `text` to `line` with the `special` characters (all ASCII) escaped, and with what a terminal or the line would obey.
pub(super) fn escape(text: &str, special: &[char], line: &mut String) {
    for c in text.chars() {
        if special.contains(&c) || c.is_control() {
            // Writing to a `String` cannot fail.
            _ = write!(line, "\\x{:02x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
}

/// The text that was escaped; a `\` that begins no escape stands for itself.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        plain.push_str(before);
        rest = match escaped(behind) {
            Some((c, behind)) => {
                plain.push(c);
                behind
            }
            None => {
                plain.push('\\');
                behind
            }
        };
    }
    plain + rest
}

/// The character whose escape, but for the `\`, begins `text`, and what follows it.
fn escaped(text: &str) -> Option<(char, &str)> {
    let (digits, rest) = text.strip_prefix('x')?.split_at_checked(2)?;
    let code = digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16).ok())??;
    let character = char::from(code);
    (code.is_ascii() || character.is_control()).then_some((character, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that special characters come back, and that a foreign `\` is kept.
    #[test]
    fn escapes_come_back() {
        let mut line = String::new();
        escape("a;b\\x3b{ü\u{1b}[2J\n\u{9b}", IN_TAGS, &mut line);
        assert_eq!(line, r"a\x3bb\x5cx3b\x7bü\x1b[2J\x0a\x9b");
        assert_eq!(unescape(&line), "a;b\\x3b{ü\u{1b}[2J\n\u{9b}");
        assert_eq!(unescape(r"C:\dir\x\xzz\xff\"), r"C:\dir\x\xzz\xff\");
    }
}
