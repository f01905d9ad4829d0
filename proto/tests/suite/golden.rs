//! The bytes that the encoders make of the sample, as they are kept under `tests/golden`.
//!
//! A change of a format on purpose is taken over with `UPDATE_GOLDEN=1 cargo test -p profiler-proto --test suite golden`;
//! what changed then shows in `git diff` for the folded stacks, and with `protoc --decode_raw` for the others.

use std::path::Path;

use profiler_proto::folded::{self, Tags};
use profiler_proto::{otlp, pprof};

use crate::sample::checkout;

fn compare(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    assert!(kept == bytes, "{} differs; UPDATE_GOLDEN=1 takes the new bytes over", path.display());
}

/// Check that the OTLP body of the sample is the one that is kept.
#[test]
fn otlp_is_as_kept() {
    compare("checkout.otlp.pb", &otlp::encode_to_vec(&checkout()));
}

/// Check that the body as it is sent, which tells the fields of a line in another order, is the one that is kept.
#[test]
fn a_request_is_as_kept() {
    let (set, mut bytes) = (checkout().compacted(), Vec::new());
    otlp::Request::of(&set).write(&mut bytes).unwrap();
    compare("checkout.request.pb", &bytes);
}

/// Check that the pprof file of the sample's on-CPU profile is the one that is kept; without gzip, whose bytes may vary.
#[test]
fn pprof_is_as_kept() {
    compare("checkout.pprof.pb", &pprof::encode_uncompressed(&checkout()));
}

/// Check that the folded stacks of the sample are those that are kept.
#[test]
fn folded_is_as_kept() {
    let set = checkout();
    compare("checkout.folded", folded::encode(&set.profiles[0], &set.dictionary, Tags::Kept).as_bytes());
}
