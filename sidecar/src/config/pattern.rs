//! Which processes are meant: by process id, or by patterns over executable, service, container and process id.
//!
//! In: numbers and patterns with the name of whoever said them. Out: a [`Filter`] that answers for one process at a time. A pattern is
//! matched in time proportional to its length times that of the text, whatever stands in either.

use std::fmt;

use super::layer::Said;
use crate::error::Error;

/// What a pattern is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The path of the executable; where the pattern has no `/`, its last part.
    Exe,
    /// `service.name`.
    Service,
    /// `container.id`.
    Container,
    /// The process id.
    Pid,
}

/// `*` for any text, `?` for any character, `[a-z]` and `[!a-z]` for one of, or none of, some, `\` before a character that is meant itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    subject: Subject,
    parts: Vec<Part>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    Any,
    AnyRun,
    Of { ranges: Vec<(char, char)>, not: bool },
}

/// Which processes to profile.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// These alone; empty: all.
    pub pids: Vec<u32>,
    /// Those that match one of these; empty: all.
    pub include: Vec<Pattern>,
    /// But none that matches one of these.
    pub exclude: Vec<Pattern>,
}

/// Why a process is not meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// Others are named by process id.
    #[error("its process id is not among those that were named")]
    OtherPids,
    /// No `include` matches.
    #[error("no --include matches it")]
    NotIncluded,
    /// This `exclude` matches.
    #[error("--exclude {0} matches it")]
    Excluded(String),
}

const LONGEST: usize = 1024;

impl Filter {
    pub(super) fn new(pids: &[Said<u32>], include: &[Said<String>], exclude: &[Said<String>]) -> Result<Self, Error> {
        if let Some(zero) = pids.iter().find(|said| said.value == 0 || i32::try_from(said.value).is_err()) {
            let what = format!("{}={}", zero.origin, zero.value);
            return Err(Error::new(what, "no process has this id", "give an id that `ps` shows in this pid namespace"));
        }
        if let (Some(pid), Some(name)) = (pids.first(), include.first()) {
            let what = format!("{} and {}", pid.origin, name.origin);
            return Err(Error::new(what, "one names processes by id, the other by pattern", "give one of the two"));
        }
        let read = |said: &Said<String>| {
            Pattern::parse(&said.value).map_err(|why| {
                let what = format!("{}={:?}", said.origin, said.value.chars().take(80).collect::<String>());
                Error::new(what, why, "write a glob such as */server, service=shop-*, container=3f2a* or pid=4712")
            })
        };
        let filter = Self {
            pids: pids.iter().map(|said| said.value).collect(),
            include: include.iter().map(read).collect::<Result<_, _>>()?,
            exclude: exclude.iter().map(read).collect::<Result<_, _>>()?,
        };
        filter.check_sense(pids, include, exclude)?;
        Ok(filter)
    }

    /// Refuses filters that nothing can pass.
    fn check_sense(&self, pids: &[Said<u32>], include: &[Said<String>], exclude: &[Said<String>]) -> Result<(), Error> {
        for (pattern, said) in self.exclude.iter().zip(exclude) {
            let is_of = |pid: &&Said<u32>| pattern.text == format!("pid={}", pid.value);
            if let Some(twin) = pids.iter().find(is_of) {
                let what = format!("{}={} and {}={}", twin.origin, twin.value, said.origin, said.value);
                return Err(Error::new(what, "the same process is included and excluded", "remove one of the two"));
            }
            if pattern.parts.iter().all(|part| *part == Part::AnyRun) {
                let what = format!("{}={}", said.origin, said.value);
                return Err(Error::new(what, "it leaves no process to profile", "exclude less"));
            }
            if let Some((_, twin)) =
                self.include.iter().zip(include).find(|(included, _)| included.means_the_same(pattern))
            {
                let what = format!("{}={} and {}={}", twin.origin, twin.value, said.origin, said.value);
                return Err(Error::new(what, "the same processes are included and excluded", "remove one of the two"));
            }
        }
        Ok(())
    }

    /// Whether the process `pid` may be meant, by its number alone.
    ///
    /// # Errors
    /// Why it is not.
    pub fn takes_pid(&self, pid: u32) -> Result<(), LeftOut> {
        if self.pids.is_empty() || self.pids.contains(&pid) { Ok(()) } else { Err(LeftOut::OtherPids) }
    }

    /// Whether a process is meant. What is not known of it is empty.
    ///
    /// # Errors
    /// Why it is not.
    pub fn takes(&self, pid: u32, exe: &str, service: &str, container: &str) -> Result<(), LeftOut> {
        self.takes_pid(pid)?;
        let matches = |pattern: &Pattern| match pattern.subject {
            Subject::Exe => pattern.matches_path(exe),
            Subject::Service => pattern.matches(service),
            Subject::Container => pattern.matches(container),
            Subject::Pid => pattern.matches(&pid.to_string()),
        };
        if !self.include.is_empty() && !self.include.iter().any(matches) {
            return Err(LeftOut::NotIncluded);
        }
        match self.exclude.iter().find(|pattern| matches(pattern)) {
            Some(pattern) => Err(LeftOut::Excluded(pattern.text.clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |patterns: &[Pattern]| patterns.iter().map(|p| p.text.clone()).collect::<Vec<_>>().join(", ");
        match (self.pids.is_empty(), self.include.is_empty()) {
            (false, _) => write!(f, "{:?}", self.pids)?,
            (true, false) => write!(f, "{}", texts(&self.include))?,
            (true, true) => write!(f, "all")?,
        }
        if self.exclude.is_empty() { Ok(()) } else { write!(f, ", but {}", texts(&self.exclude)) }
    }
}

impl Pattern {
    /// Reads a pattern: `GLOB` or `exe=GLOB`, `service=GLOB`, `container=GLOB`, `pid=NUMBER`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let (subject, glob) = match text.split_once('=') {
            Some(("exe", glob)) => (Subject::Exe, glob),
            Some(("service", glob)) => (Subject::Service, glob),
            Some(("container", glob)) => (Subject::Container, glob),
            Some(("pid", glob)) => (Subject::Pid, glob),
            Some((other, _)) if other.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                return Err(format!(
                    "{other:?} is nothing that processes are chosen by: exe, service, container, pid are"
                ));
            }
            _ => (Subject::Exe, text),
        };
        if glob.is_empty() {
            return Err("the glob is empty".into());
        }
        if subject == Subject::Pid && !glob.parse().is_ok_and(|pid: i32| pid > 0 && pid.to_string() == glob) {
            return Err("no process has this id: it is a number of 1 and more, and no glob".into());
        }
        let mut characters = glob.chars();
        let mut parts = Vec::new();
        while let Some(character) = characters.next() {
            parts.push(match character {
                '*' => Part::AnyRun,
                '?' => Part::Any,
                '[' => class(&mut characters)?,
                '\\' => Part::One(characters.next().ok_or("it ends in a backslash")?),
                one => Part::One(one),
            });
        }
        parts.dedup_by(|a, b| *a == Part::AnyRun && *b == Part::AnyRun);
        Ok(Self { subject, parts, text: text.into() })
    }

    fn means_the_same(&self, other: &Self) -> bool {
        (self.subject, &self.parts) == (other.subject, &other.parts)
    }

    /// Matches a path as a whole, or its last part where the pattern has no `/`.
    fn matches_path(&self, path: &str) -> bool {
        let whole = self.parts.contains(&Part::One('/'));
        self.matches(if whole { path } else { path.rsplit('/').next().unwrap_or(path) })
    }

    /// Whether all of `text` matches. Only the last run is ever taken back, which is enough for globs.
    fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().take(16 << 10).collect();
        let (mut at, mut part) = (0, 0);
        let mut back: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.parts.get(part) {
                Some(Part::AnyRun) => {
                    back = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(one) if one.takes(text[at]) => {
                    at += 1;
                    part += 1;
                    continue;
                }
                _ => {}
            }
            let Some((run, from)) = back else { return false };
            back = Some((run, from + 1));
            (part, at) = (run + 1, from + 1);
        }
        self.parts[part..].iter().all(|part| *part == Part::AnyRun)
    }
}

impl Part {
    fn takes(&self, character: char) -> bool {
        match self {
            Self::One(one) => *one == character,
            Self::Any | Self::AnyRun => true,
            Self::Of { ranges, not } => ranges.iter().any(|(from, to)| (*from..=*to).contains(&character)) != *not,
        }
    }
}

/// The rest of `[…]`.
fn class(characters: &mut std::str::Chars<'_>) -> Result<Part, String> {
    let (inside, rest) = characters.as_str().split_once(']').ok_or("a [ has no ]")?;
    *characters = rest.chars();
    let (not, inside) = inside.strip_prefix('!').map_or((false, inside), |inside| (true, inside));
    let mut ranges = Vec::new();
    let mut inside = inside.chars().peekable();
    while let Some(from) = inside.next() {
        let mut to = from;
        if inside.peek() == Some(&'-') {
            inside.next();
            to = inside.next().ok_or("a range in […] has no end")?;
        }
        if from > to {
            return Err(format!("the range {from}-{to} in […] is empty"));
        }
        ranges.push((from, to));
    }
    if ranges.is_empty() { Err("there is nothing in […]".into()) } else { Ok(Part::Of { ranges, not }) }
}
