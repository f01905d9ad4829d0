//! Texts within a folded line.

use std::fmt::Write;

/// What stands escaped in every frame.
pub(super) const IN_FRAMES: &[char] = &['\\', ';', '\n', '\r'];
/// What stands escaped in the keys and values of tags.
pub(super) const IN_TAGS: &[char] = &['\\', ';', '\n', '\r', ',', '=', '{', '}'];

/// Appends `text` to `line` with the `special` characters (all ASCII) escaped.
pub(super) fn escape(text: &str, special: &[char], line: &mut String) {
    for c in text.chars() {
        if special.contains(&c) {
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
    code.is_ascii().then_some((code.into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that special characters come back, and that a foreign `\` is kept.
    #[test]
    fn escapes_come_back() {
        let mut line = String::new();
        escape("a;b\\x3b{ü", IN_TAGS, &mut line);
        assert_eq!(line, r"a\x3bb\x5cx3b\x7bü");
        assert_eq!(unescape(&line), "a;b\\x3b{ü");
        assert_eq!(unescape(r"C:\dir\x\xzz\xff\"), r"C:\dir\x\xzz\xff\");
    }
}
