//! Files of one capture.
//!
//! In: one set for each process. Out: a file, written beside its place and moved there, so that it is whole or not there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use profiler_proto::model::{Value, join};
use profiler_proto::svg::{self, Graph};
use profiler_proto::{ProfileSet, folded, pprof};

use crate::error::Error;

/// What a file is, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
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
    ///
    /// # Errors
    /// If it says none that can be written.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let ends_with = |end: &str| name.len() > end.len() && name.ends_with(end);
        match () {
            () if ends_with(".pb.gz") || ends_with(".pprof") => Ok(Self::Pprof),
            () if ends_with(".pb") => Ok(Self::PprofPlain),
            () if ends_with(".folded") => Ok(Self::Folded),
            () if ends_with(".svg") => Ok(Self::Svg),
            () => {
                let why = "the name does not say which form the file is to have";
                Err(Error::new(path.display().to_string(), why, "end it in .pb.gz, .pb, .folded or .svg"))
            }
        }
    }

    fn bytes(self, set: &ProfileSet) -> Vec<u8> {
        match self {
            Self::Pprof => pprof::encode(set),
            Self::PprofPlain => pprof::encode_uncompressed(set),
            Self::Folded => {
                let lines = set.profiles.iter().map(|p| folded::encode(p, &set.dictionary, folded::Tags::Left));
                lines.collect::<String>().into_bytes()
            }
            Self::Svg => drawn(set).into_bytes(),
        }
    }
}

/// The flame graph of all profiles in `set`.
fn drawn(set: &ProfileSet) -> String {
    let mut graph = Graph::new();
    set.profiles.iter().for_each(|profile| graph.add_profile(profile, &set.dictionary));
    svg::draw(&graph, set.resource.service_name().unwrap_or("several processes"), "samples")
}

/// One set of all: that of the one process, or all of them joined, told apart by `pid` and `service`.
#[must_use]
pub fn joined(mut sets: Vec<ProfileSet>) -> ProfileSet {
    if sets.len() < 2 {
        return sets.pop().unwrap_or_default();
    }
    let labelled: Vec<_> = sets
        .iter()
        .map(|set| {
            let pid = set.resource.get("process.pid").cloned().unwrap_or_default();
            let service = set.resource.service_name().unwrap_or_default();
            (set, vec![("pid", pid), ("service", Value::from(service))])
        })
        .collect();
    join(&labelled)
}

/// Whether a file can be written to `path`: asked before what is to be in it is recorded.
///
/// # Errors
/// Why not.
pub fn check(path: &Path) -> Result<(), Error> {
    Form::of(path)?;
    let beside = beside(path);
    let tried = match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => fs::write(&beside, []).and_then(|()| fs::remove_file(&beside)),
    };
    tried.map_err(|error| refused(path, &error))
}

/// Writes `set` to `path`; gives the size of the file.
///
/// # Errors
/// Why it cannot be.
pub fn write(set: &ProfileSet, path: &Path) -> Result<u64, Error> {
    let bytes = Form::of(path)?.bytes(set);
    let beside = beside(path);
    let written = fs::write(&beside, &bytes).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        // The first error is the one to tell; what is left of the file may not be removable either.
        drop(fs::remove_file(&beside));
        return Err(refused(path, &error));
    }
    Ok(bytes.len() as u64)
}

/// Where a file is written before it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut beside = PathBuf::from(path).into_os_string();
    beside.push(format!(".{}.part", std::process::id()));
    beside.into()
}

fn refused(path: &Path, error: &io::Error) -> Error {
    Error::new(path.display().to_string(), error.to_string(), "give -o a path that can be written")
}
