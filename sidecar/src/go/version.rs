//! The version of Go that built a program.

use std::fmt;

/// A version: its numbers, and the text they were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// 1, and 0 where it is unknown: a build of an unnamed commit, or a program whose build info was removed.
    pub major: u16,
    /// The release: 26 of `go1.26.8`.
    pub minor: u16,
    /// The patch: 8 of `go1.26.8`; 0 of release candidates.
    pub patch: u16,
    /// All that the program says: `go1.27-devel_1a2b3c X:nodwarf5`.
    pub text: String,
}

impl Default for Version {
    fn default() -> Self {
        Self { major: 0, minor: 0, patch: 0, text: "unknown".to_owned() }
    }
}

impl Version {
    /// Reads what `runtime.Version` says: `go1.26.8`, `go1.27rc1`, `devel go1.27-1a2b3c Mon Nov 23`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let numbers = text.find("go1.").map(|at| &text[at + 2..]).unwrap_or_default();
        let mut numbers = numbers.split('.').map(|part| {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            (part[..end].parse().ok(), end == part.len())
        });
        let major = numbers.next().and_then(|(number, _)| number);
        let (minor, whole) = numbers.next().unwrap_or((None, false));
        let patch = numbers.next().filter(|_| whole).and_then(|(number, _)| number);
        let (Some(major), Some(minor)) = (major, minor) else {
            return Self { text: text.to_owned(), ..Self::default() };
        };
        Self { major, minor, patch: patch.unwrap_or(0), text: text.to_owned() }
    }

    /// Whether its numbers are known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.major > 0
    }

    /// What it is instead of a release, for people: what the runtime keeps is then what it was on that day, and may be elsewhere than in the release.
    #[must_use]
    pub fn before_release(&self) -> Option<&'static str> {
        let behind = self.text.find("go1.").and_then(|at| self.text.get(at + 4..)).unwrap_or_default();
        let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        match () {
            () if self.text.contains("devel") => Some("a development version"),
            () if behind.starts_with("rc") => Some("a release candidate"),
            () if behind.starts_with("beta") => Some("a beta version"),
            // The toolchain of somebody who builds from the sources of a day.
            () if !behind.is_empty() && !behind.starts_with(['.', ' ']) => Some("no release"),
            () => None,
        }
    }

    /// The experiment it was built with that lays the runtime's structures out in another way, if any: lock ranking puts a rank in front of each lock.
    ///
    /// Sources: runtime/lockrank_on.go (`lockRankStruct`), cmd/link/internal/ld/main.go: the version ends with ` X:`, from 1.26 on with `-X:`, and what differs from the
    /// release's experiments.
    #[must_use]
    pub fn other_layout(&self) -> Option<&'static str> {
        const RANKED: &str = "staticlockranking";
        let (_, experiments) = self.text.split_once(" X:").or_else(|| self.text.split_once("-X:"))?;
        let named = experiments.split([',', ' ']).any(|name| name == RANKED);
        named.then_some(RANKED)
    }

    /// Whether it is known to be before Go 1.`minor`.
    #[must_use]
    pub fn is_before(&self, minor: u16) -> bool {
        self.is_known() && (self.major, self.minor) < (1, minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_of_every_form_of_version() {
        let numbers = |text| {
            let version = Version::parse(text);
            (version.major, version.minor, version.patch)
        };
        assert_eq!(numbers("go1.26.8"), (1, 26, 8));
        assert_eq!(numbers("go1.21"), (1, 21, 0));
        assert_eq!(numbers("go1.27rc1"), (1, 27, 0));
        assert_eq!(numbers("go1.27-devel_1a2b.3c X:nodwarf5"), (1, 27, 0));
        assert_eq!(numbers("devel go1.22-1a2b3c Mon Nov 23 05:00:00 2026 +0000"), (1, 22, 0));
        assert_eq!(numbers("go1.22.12-fips"), (1, 22, 12));
        assert_eq!(numbers("go1.22.12 X:boringcrypto"), (1, 22, 12));
        assert_eq!(numbers("unknown"), (0, 0, 0));
        assert_eq!(numbers("go1.99999999"), (0, 0, 0));
        assert!(Version::parse("go1.17.13").is_before(18));
        assert!(!Version::parse("unknown").is_before(18));
    }

    #[test]
    fn an_experiment_that_moves_things_is_told() {
        let told = |text| Version::parse(text).other_layout();
        for text in [
            "go1.24.13 X:staticlockranking",
            "go1.26.8-X:staticlockranking",
            "go1.27.0-X:nodwarf5,staticlockranking",
            "go1.27-fips X:staticlockranking",
        ] {
            assert_eq!(told(text), Some("staticlockranking"), "{text}");
        }
        assert_eq!(["go1.26.8", "go1.26.8-X:nostaticlockranking", "go1.25.11 X:"].map(told), [None; 3]);
    }

    #[test]
    fn what_is_no_release_is_told() {
        let told = |text| Version::parse(text).before_release();
        for text in ["devel go1.22-1a2b3c Mon Nov 23", "go1.27-devel_1a2b", "devel +1a2b"] {
            assert_eq!(told(text), Some("a development version"), "{text}");
        }
        assert_eq!(["go1.27rc1", "go1.27rc2 X:nodwarf5"].map(told), [Some("a release candidate"); 2]);
        assert_eq!(
            ["go1.27beta1", "go1.27-20260101-RC00 cl/1"].map(told),
            [Some("a beta version"), Some("no release")]
        );
        for text in ["go1.22.12", "go1.22.12-fips", "go1.26.8 X:boringcrypto", "go1.21", "go1.22 (Red Hat)", "unknown"]
        {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
