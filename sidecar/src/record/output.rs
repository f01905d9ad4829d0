//! A file that a capture is written to, or standard output.
//!
//! In: a name, which says the form; a set. Out: the file, written beside its place and moved there, so that it is whole or not there. Who may write
//! to the folder, too, cannot have another file written instead: no link is followed, and nothing but a regular file is replaced. `-` is standard output, and pprof: out of a
//! container that has no place to write to and no shell to copy with.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use profiler_proto::model::{Value, join};
use profiler_proto::svg::{self, Graph};
use profiler_proto::{ProfileSet, folded, pprof};

use crate::assemble::without_samples;
use crate::error::Error;
use crate::plain::plain;
use crate::text::profiles;

/// What a file is, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `.pb.gz`: pprof, as Go writes it.
    Pprof,
    /// `.pb`: pprof without gzip.
    PprofPlain,
    /// `.folded`: a line for each stack.
    Folded,
    /// `.svg`: a flame graph.
    Svg,
}

impl Form {
    /// The form that the name of `path` says.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        let ends_with = |end: &str| name.len() > end.len() && name.ends_with(end.as_bytes());
        match () {
            () if ends_with(".pb.gz") || ends_with(".pprof") => Some(Self::Pprof),
            () if ends_with(".pb") => Some(Self::PprofPlain),
            () if ends_with(".folded") => Some(Self::Folded),
            () if ends_with(".svg") => Some(Self::Svg),
            () => None,
        }
    }

    /// A file of `set`, which is one capture; of folded stacks and flame graphs, the type `kind`.
    fn bytes(self, set: &ProfileSet, kind: &str) -> Vec<u8> {
        match self {
            Self::Pprof => pprof::encode_compact_gzip(set, |key| key.into()),
            Self::PprofPlain => pprof::encode_compact(set, |key| key.into()),
            Self::Folded => {
                let lines = profiles(set, kind).map(|p| folded::encode(p, &set.dictionary, folded::Tags::Left));
                lines.collect::<String>().into_bytes()
            }
            Self::Svg => drawn(set, kind).into_bytes(),
        }
    }
}

/// A flame graph of the type `kind`.
fn drawn(set: &ProfileSet, kind: &str) -> String {
    let mut graph = Graph::new();
    profiles(set, kind).for_each(|profile| graph.add_profile(profile, &set.dictionary));
    let unit = profiles(set, kind).next().map_or("", |one| set.dictionary.strings.text(one.kind.sample_type.unit));
    let title = format!("{}: {kind}", set.resource.service_name().unwrap_or("several processes"));
    svg::draw(&graph, &title, if unit == "count" { kind } else { unit })
}

/// One capture of all: the set of the one process, or all of them joined, told apart by `pid` and `service`. Without any, a capture at that rate, of the
/// time until now, that says that there was nothing: what has no sample type cannot be read.
#[must_use]
pub fn joined(mut sets: Vec<ProfileSet>, rate_hz: u32, took: Duration) -> ProfileSet {
    let is_one = sets.len() < 2;
    if is_one && sets.iter().all(pprof::is_capture) {
        return sets.pop().unwrap_or_else(|| without_samples(rate_hz, took));
    }
    let labelled: Vec<_> = sets
        .iter()
        .map(|set| {
            let pid = set.resource.get("process.pid").cloned().unwrap_or_default();
            let service = set.resource.service_name().unwrap_or_default();
            (set, if is_one { Vec::new() } else { vec![("pid", pid), ("service", Value::from(service))] })
        })
        .collect();
    join(&labelled)
}

/// The name of standard output.
const STANDARD: &str = "-";

/// Where a capture is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// `None`: standard output.
    path: Option<PathBuf>,
    form: Form,
}

impl Output {
    /// The file of this name, or standard output.
    ///
    /// # Errors
    /// If the name says no form that can be written.
    pub fn of(path: PathBuf) -> Result<Self, String> {
        if path.as_os_str() == STANDARD {
            return Ok(Self { path: None, form: Form::Pprof });
        }
        let why =
            "the name does not say which form the file is to have; end it in .pb.gz or .pprof, .pb, .folded or .svg";
        let form = Form::of(&path).ok_or_else(|| why.to_owned())?;
        Ok(Self { path: Some(path), form })
    }

    /// Reads it from the command line.
    #[must_use]
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        PathBufValueParser::new().try_map(Self::of)
    }

    /// What to call it: nothing that a terminal would obey.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard output".to_owned(), |path| plain(&path.display().to_string()))
    }

    /// Whether it is standard output, where nothing else may stand then.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        self.path.is_none()
    }

    /// Whether it can be written: asked before what is to be in it is recorded.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Error> {
        let Some(path) = &self.path else { return self.check_standard() };
        let (_, beside) = self.begin(path)?;
        fs::remove_file(beside).map_err(|error| self.refused(&error))
    }

    /// Writes `set`, which is one capture; of folded stacks and flame graphs, the type `kind`. The size of the file.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn write(&self, set: &ProfileSet, kind: &str) -> Result<u64, Error> {
        let bytes = self.form.bytes(set, kind);
        let Some(path) = &self.path else {
            self.check_standard()?;
            // Not through `Stdout`, to which a descriptor that cannot be written to is as good as one that takes all.
            let out = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            let written = out.and_then(|mut out| out.write_all(&bytes));
            return written.map(|()| bytes.len() as u64).map_err(|error| {
                Error::new(self.name(), error.to_string(), "give it a place to write to, or -o a path")
            });
        };
        let (mut file, beside) = self.begin(path)?;
        if let Err(error) = file.write_all(&bytes).and_then(|()| fs::rename(&beside, path)) {
            // The first error is the one to tell; what is left of the file may not be removable either.
            drop(fs::remove_file(&beside));
            return Err(self.refused(&error));
        }
        Ok(bytes.len() as u64)
    }

    /// An empty file beside it, to be moved there: a new one, whose name nobody can have guessed and taken.
    fn begin(&self, path: &Path) -> Result<(File, PathBuf), Error> {
        match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => {
                let remedy = "give -o the path of a new file, or of one to be replaced";
                return Err(Error::new(self.name(), "it is there and is no regular file", remedy));
            }
            _ => {}
        }
        let mut beside = path.to_owned().into_os_string();
        beside.push(format!(".{:016x}.part", RandomState::new().build_hasher().finish()));
        let file = File::options().write(true).create_new(true).open(&beside).map_err(|error| self.refused(&error))?;
        Ok((file, beside.into()))
    }

    fn refused(&self, error: &io::Error) -> Error {
        Error::new(self.name(), error.to_string(), "give -o a path that can be written")
    }

    fn check_standard(&self) -> Result<(), Error> {
        match io::stdout().is_terminal() {
            true => {
                Err(Error::new(self.name(), "it is a terminal", "send it into a file or a pipe, or give -o a path"))
            }
            false => Ok(()),
        }
    }
}
