//! Profiles as pprof files: what `go tool pprof`, Pyroscope and most other tools read, and what Go programs write.
//!
//! Out of [`encode`] come gzip files; into [`decode`] go files of any producer, gzip or not. A file holds one capture:
//! one window, one period, several sample types. [`captures`] divides a set into such. A [`Link`](crate::model::Link)
//! travels as the labels `trace_id` and `span_id` (lower-case hexadecimal), as Pyroscope and Go programs have it.
//!
//! What pprof has no place for is left out: attributes of locations and mappings other than those named here, columns
//! of empty text. Attributes of the resource and the counts of `profiler.*` on profiles become comments.

mod decode;
mod encode;
mod labels;
mod messages;
mod source;

use crate::model::{AttributeSet, ProfileSet};

pub use decode::decode;
pub(crate) use encode::is_together;
pub use encode::{captures, compress, encode, encode_compact, encode_compact_gzip, encode_uncompressed, is_capture};

/// Has readers of the file show the profiles of this sample type first, whatever is usual for a set.
pub fn show_first(set: &mut ProfileSet, sample_type: &str) {
    let shown = set.dictionary.attribute(names::DEFAULT_SAMPLE_TYPE, sample_type);
    for profile in &mut set.profiles {
        let ids = set.dictionary.attribute_sets.get(profile.attributes).map_or(&[][..], AttributeSet::ids);
        let ids: Vec<_> = ids.iter().copied().chain([shown]).collect();
        profile.attributes = set.dictionary.attribute_set(ids);
    }
}

/// Attributes that carry what only pprof knows. Names: OpenTelemetry semantic conventions 1.44, registry "pprof" and
/// "process", but for the last, which is ours: the conventions' own stands on the scope, and one of our sets may hold
/// profiles of several files.
mod names {
    pub(super) const COMMENT: &str = "pprof.profile.comment";
    pub(super) const DROP_FRAMES: &str = "pprof.profile.drop_frames";
    pub(super) const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
    pub(super) const DOC_URL: &str = "pprof.profile.doc_url";
    pub(super) const IS_FOLDED: &str = "pprof.location.is_folded";
    pub(super) const HAS_FUNCTIONS: &str = "pprof.mapping.has_functions";
    pub(super) const HAS_FILENAMES: &str = "pprof.mapping.has_filenames";
    pub(super) const HAS_LINE_NUMBERS: &str = "pprof.mapping.has_line_numbers";
    pub(super) const HAS_INLINE_FRAMES: &str = "pprof.mapping.has_inline_frames";
    pub(super) const BUILD_ID_GNU: &str = "process.executable.build_id.gnu";
    pub(super) const BUILD_ID_GO: &str = "process.executable.build_id.go";
    pub(super) const BUILD_ID_HTLHASH: &str = "process.executable.build_id.htlhash";
    pub(super) const DEFAULT_SAMPLE_TYPE: &str = "profiler.pprof.default_sample_type";
}

/// The sample type that a viewer shows first where nobody said otherwise: on-CPU time, memory in use, else the last one,
/// which is what `go tool pprof` takes.
fn default_sample_type<'a>(types: &[&'a str]) -> &'a str {
    let known = ["cpu", "inuse_space"].into_iter().find_map(|name| types.iter().find(|known| **known == name));
    known.or(types.last()).copied().unwrap_or("")
}
