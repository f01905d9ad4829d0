//! A capture as a file, written beside its place and moved there, so that it is whole or not there.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;

use profiler_proto::svg::{self, Graph};
use profiler_proto::{ProfileSet, folded, pprof};

use crate::error::Error;

use super::text::{plain, profile};

/// Writes `set` in the form that the name of `path` says; of folded stacks and flame graphs, the type `kind`. What to say of it.
pub(super) fn write(set: &ProfileSet, kind: &str, path: &Path) -> Result<String, Error> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let shown = path.display().to_string();
    let bytes = if name.ends_with(".pb.gz") {
        // One capture, without what it does not use: made for this.
        pprof::encode_compact_gzip(set, |key| key.into())
    } else if name.ends_with(".folded") {
        folded(set, kind).into_bytes()
    } else if name.ends_with(".svg") {
        drawn(set, kind).into_bytes()
    } else {
        return Err(Error::new(
            shown,
            "its name does not say which form it is to have",
            "end it in .pb.gz, .folded or .svg",
        ));
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    // A file of that name, or a link, is somebody else's: in a folder that others write to, it is not followed.
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside);
    let is_ours = made.is_ok();
    let written = made.and_then(|mut file| file.write_all(&bytes)).and_then(|()| std::fs::rename(&beside, path));
    if let Err(error) = written {
        if is_ours {
            // The first error is the one to tell; what is left of the file may not be removable either.
            drop(std::fs::remove_file(&beside));
        }
        return Err(Error::new(shown, error.to_string(), "give -o a path that can be written"));
    }
    let samples = profile(set, kind).map_or(0, |profile| profile.samples.len());
    Ok(format!("{}: {samples} stacks, {} bytes", plain(&shown), bytes.len()))
}

/// The stacks of one type, a line each.
fn folded(set: &ProfileSet, kind: &str) -> String {
    let profile = profile(set, kind);
    profile.map(|profile| folded::encode(profile, &set.dictionary, folded::Tags::Left)).unwrap_or_default()
}

/// A flame graph of the type `kind`.
fn drawn(set: &ProfileSet, kind: &str) -> String {
    let mut graph = Graph::new();
    let profile = profile(set, kind);
    profile.iter().for_each(|profile| graph.add_profile(profile, &set.dictionary));
    let unit = profile.map_or("", |profile| set.dictionary.strings.text(profile.kind.sample_type.unit));
    svg::draw(&graph, kind, unit)
}
