//! The parameters of a request, parsed once.
//!
//! In: the part of a URL behind `?`. Out: typed values, or a [`BadParameter`] that names the parameter, its value and
//! what is allowed; nothing is ignored silently, an unknown name least of all.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use profiler_proto::model::TagFilter;

use super::process::Chosen;
use super::range::Range;

/// A parameter that cannot be: answered with 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadParameter {
    name: String,
    value: String,
    allowed: String,
}

impl fmt::Display for BadParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value): (String, String) =
            (self.name.chars().take(80).collect(), self.value.chars().take(80).collect());
        writeln!(f, "bad parameter {name:?} = {value:?}: {}", self.allowed)
    }
}

/// The decoded parameters of a request, in their order.
#[derive(Debug)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

/// The parameters that choose samples, wherever samples are shown.
pub(super) const SAMPLES: [&str; 7] = ["from", "to", "tag", "type", "growth", "service", "pid"];
/// The one parameter that may stand several times.
const REPEATABLE: &str = "tag";
/// So many tags can be asked for at once.
const MOST_TAGS: usize = 64;

impl Query {
    /// Decodes `text`, in which only the names in `known` may stand.
    pub(super) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, BadParameter> {
        let mut query = Self { pairs: Vec::new() };
        for pair in text.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(bad(name, value, "text in UTF-8 is allowed, with % only before two hexadecimal digits"));
            };
            if !known.contains(&name.as_str()) {
                return Err(bad(&name, &value, format!("no such parameter here; known: {}", list(known))));
            }
            if name != REPEATABLE && query.one(&name).is_some() {
                return Err(bad(&name, &value, "it may stand only once"));
            }
            query.pairs.push((name, value));
        }
        Ok(query)
    }

    /// The value of a parameter.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A whole number out of `allowed`.
    pub(super) fn number(&self, name: &str, allowed: RangeInclusive<u64>, default: u64) -> Result<u64, BadParameter> {
        let Some(value) = self.one(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| allowed.contains(number));
        let (least, most) = (allowed.start(), allowed.end());
        number.ok_or_else(|| bad(name, value, format!("a whole number from {least} to {most} is allowed")))
    }

    /// One of `allowed`, the first where nothing is said.
    pub(super) fn choice<'a>(&self, name: &str, allowed: &[&'a str]) -> Result<&'a str, BadParameter> {
        let default = allowed.first().copied().unwrap_or("");
        let Some(value) = self.one(name) else { return Ok(default) };
        let chosen = allowed.iter().find(|choice| **choice == value);
        chosen.copied().ok_or_else(|| bad(name, value, format!("allowed: {}", list(allowed))))
    }

    /// Whether a flag is set: by its name alone, or as 1.
    pub(super) fn flag(&self, name: &str) -> Result<bool, BadParameter> {
        match self.one(name) {
            None | Some("0") => Ok(false),
            Some("" | "1") => Ok(true),
            Some(value) => Err(bad(name, value, "allowed: 1, 0, or nothing behind the name")),
        }
    }

    /// `service` and `pid`: which processes.
    pub(super) fn process(&self) -> Result<Chosen, BadParameter> {
        let pid = self.one("pid").map(|_| self.number("pid", 0..=u64::from(u32::MAX), 0)).transpose()?;
        Ok(Chosen { service: self.one("service").map(str::to_owned), pid: pid.and_then(|pid| u32::try_from(pid).ok()) })
    }

    /// The value of a parameter cannot be, for reasons that are not its own.
    pub(super) fn refusal(&self, name: &str, allowed: impl Into<String>) -> BadParameter {
        bad(name, self.one(name).unwrap_or(""), allowed)
    }

    /// `from` and `to`: the last `window` up to `now` (nanoseconds since 1970) where nothing is said.
    pub(super) fn range(&self, now: u64, window: Duration) -> Result<Range, BadParameter> {
        let from = self.time("from", now, now.saturating_sub(nanos(window.as_secs_f64())))?;
        let to = self.time("to", now, now)?;
        if from > to {
            return Err(bad("from", self.one("from").unwrap_or(""), "it must not be behind `to`"));
        }
        Ok(Range { from, to })
    }

    /// `tag`, each a key and a value.
    pub(super) fn tags(&self) -> Result<TagFilter, BadParameter> {
        let mut filter = TagFilter::new();
        for (count, (name, value)) in self.pairs.iter().filter(|(name, _)| name == REPEATABLE).enumerate() {
            let tag = value.split_once('=').filter(|(key, _)| !key.is_empty() && count < MOST_TAGS);
            let Some((key, tag)) = tag else {
                let allowed = format!("key=value is allowed, with = written as %3D, at most {MOST_TAGS} times");
                return Err(bad(name, value, allowed));
            };
            filter = filter.with(key, tag);
        }
        Ok(filter)
    }

    /// Seconds since 1970, or before `now` if negative.
    fn time(&self, name: &str, now: u64, default: u64) -> Result<u64, BadParameter> {
        /// The year 2286, and about as long before now.
        const MOST: f64 = 1e10;
        let Some(value) = self.one(name) else { return Ok(default) };
        match value.parse::<f64>().ok().filter(|seconds| seconds.abs() < MOST) {
            Some(seconds) if seconds.is_sign_negative() => Ok(now.saturating_sub(nanos(-seconds))),
            Some(seconds) => Ok(nanos(seconds)),
            None => Err(bad(name, value, "seconds since 1970 are allowed, or negative seconds: before now")),
        }
    }
}

fn bad(name: &str, value: &str, allowed: impl Into<String>) -> BadParameter {
    BadParameter { name: name.to_owned(), value: value.to_owned(), allowed: allowed.into() }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Seconds as nanoseconds; a float beyond the type's bounds ends at them.
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Undoes percent-encoding and `+` for a space (WHATWG URL, "application/x-www-form-urlencoded parsing"); `None` for a
/// stray `%` or bytes that are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                hex(digits[0])? << 4 | hex(digits[1])?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn query(text: &str) -> Query {
        Query::parse(Some(text), &["from", "to", "tag", "n", "format"]).unwrap()
    }

    fn refusal<T: fmt::Debug>(result: Result<T, BadParameter>) -> String {
        result.unwrap_err().to_string()
    }

    /// Check that times are read from the epoch or from now, and default to the whole window.
    #[test]
    fn times_count_from_the_epoch_or_from_now() {
        let window = Duration::from_secs(900);
        let range = |text: &str| query(text).range(NOW, window);
        assert_eq!(range(""), Ok(Range { from: NOW - 900_000_000_000, to: NOW }));
        assert_eq!(range("from=-60&to=-0"), Ok(Range { from: NOW - 60_000_000_000, to: NOW }));
        assert_eq!(range("from=1700000000.5"), Ok(Range { from: 1_700_000_000_500_000_000, to: NOW }));
        for bad in ["from=x", "from=", "from=NaN", "from=inf", "to=1e11", "from=-1e300"] {
            assert!(refusal(range(bad)).contains("seconds since 1970"), "{bad}");
        }
        assert!(refusal(range("from=-10&to=-20")).contains("from"));
    }

    /// Check that percent-encoding is undone, in tags too, and that what is broken is refused.
    #[test]
    fn encoding_is_undone() {
        let filter = TagFilter::new().with("endpoint", "/a b=c").with("key", "é");
        assert_eq!(query("tag=endpoint%3D%2Fa+b%3Dc&tag=key=%C3%A9").tags(), Ok(filter));
        for bad in ["tag=%", "tag=%2", "tag=%zz", "tag=%ff", "%=1"] {
            assert!(refusal(Query::parse(Some(bad), &["tag"])).contains("UTF-8"), "{bad}");
        }
        assert!(refusal(query("tag=endpoint").tags()).contains("key=value"));
        assert!(refusal(query("tag=%3Dx").tags()).contains("\"=x\""));
        assert!(refusal(query(&"tag=a%3Db&".repeat(65)).tags()).contains("64"));
    }

    /// Check that a flag is its name, 1 or 0, and nothing else.
    #[test]
    fn a_flag_is_set_by_its_name() {
        let flag = |text: &str| Query::parse(Some(text), &["growth", "type"]).unwrap().flag("growth");
        let (yes, no) = (["growth", "growth=", "growth=1"].map(flag), ["growth=0", "", "type=1"].map(flag));
        assert_eq!((yes, no), ([Ok(true), Ok(true), Ok(true)], [Ok(false), Ok(false), Ok(false)]));
        for bad in ["growth=2", "growth=true", "growth=1%00", "growth=%F0%9F%8C%B1"] {
            assert!(refusal(flag(bad)).contains("1, 0, or nothing"), "{bad}");
        }
    }

    /// Check that unknown and repeated names, numbers out of bounds and unknown choices are named.
    #[test]
    fn what_is_not_allowed_is_named() {
        let unknown = refusal(Query::parse(Some("secnds=1"), &["seconds"]));
        assert_eq!(unknown, "bad parameter \"secnds\" = \"1\": no such parameter here; known: seconds\n");
        assert!(refusal(Query::parse(Some("n=1&n=2"), &["n"])).contains("only once"));
        for bad in ["n=0", "n=11", "n=-1", "n=1.5", "n=", "n=99999999999999999999"] {
            assert!(refusal(query(bad).number("n", 1..=10, 5)).contains("from 1 to 10"), "{bad}");
        }
        assert_eq!((query("").number("n", 1..=10, 5), query("n=7").number("n", 1..=10, 5)), (Ok(5), Ok(7)));
        assert_eq!(
            (query("").choice("format", &["json", "text"]), query("format=text").choice("format", &["json", "text"])),
            (Ok("json"), Ok("text"))
        );
        assert!(refusal(query("format=xml").choice("format", &["json", "text"])).contains("json, text"));
        assert!(refusal(Query::parse(Some(&format!("x={}", "y".repeat(10_000))), &[])).len() < 300);
    }
}
