//! What must hold for any bytes: the entry points of the fuzz targets and of their smoke test. Not public interface.
//!
//! In: bytes from a fuzzer. Out: nothing; a broken property is a failed assertion, which is why nothing else may call
//! these. Each decodes, and if that succeeds, goes once round through the encoder: the second round must change nothing.

use crate::folded::Tags;
use crate::{Limits, folded, heap_v2, otlp, pprof, split, validate};

/// Small enough for a fuzzer's own limits of memory and time.
const LIMITS: Limits = Limits { bytes: 1 << 20, memory: 16 << 20, depth: 8 };

/// OTLP requests.
pub fn otlp(bytes: &[u8]) {
    let _findings = validate::validate_bytes(bytes);
    let _refused = otlp::decode_bytes(bytes, &LIMITS).map(|sets| sets.iter().for_each(otlp_round));
}

fn otlp_round(set: &crate::ProfileSet) {
    let body = otlp::encode_to_vec(set);
    let again = otlp::decode_bytes(&body, &Limits::default());
    let bodies: Vec<_> = again.iter().flatten().map(otlp::encode_to_vec).collect();
    let sent = set.profiles.iter().any(|profile| !profile.samples.is_empty());
    assert_eq!(bodies, Vec::from_iter(sent.then_some(body)), "of {set:?}");
    let parts = split::split(set, 500);
    let samples = |sets: &[crate::ProfileSet]| -> usize {
        sets.iter().flat_map(|set| &set.profiles).map(|profile| profile.samples.len()).sum()
    };
    assert_eq!(samples(&parts.parts) + samples(&parts.too_large), samples(&[set.compacted()]), "of {set:?}");
}

/// pprof files, with gzip or without.
pub fn pprof(bytes: &[u8]) {
    let _refused = pprof::decode(bytes, &LIMITS).map(|set| {
        let once = pprof::decode(&pprof::encode(&set), &Limits::default());
        let twice = once.as_ref().map(|once| pprof::decode(&pprof::encode(once), &Limits::default()));
        assert_eq!(twice, Ok(once.clone()), "of {set:?}");
    });
}

/// Folded stacks.
pub fn folded(bytes: &[u8]) {
    let _refused = folded::decode(bytes, &LIMITS).map(|set| {
        let encode = |set: &crate::ProfileSet| {
            set.profiles.iter().map(|profile| folded::encode(profile, &set.dictionary, Tags::Kept)).collect::<String>()
        };
        let once = encode(&set);
        let twice = folded::decode(once.as_bytes(), &Limits::default()).map(|set| encode(&set));
        assert_eq!(twice, Ok(once), "of {set:?}");
    });
}

/// Dumps of jemalloc.
pub fn heap_v2(bytes: &[u8]) {
    let _refused = heap_v2::decode(bytes, &LIMITS).map(|dump| {
        assert_eq!(heap_v2::decode(dump.to_string().as_bytes(), &Limits::default()), Ok(dump));
    });
}

/// Names of functions, by themselves and as those of either mangling. `clock`: the fuzzer's, for this crate has none.
#[cfg(feature = "demangle")]
pub fn names(bytes: &[u8], clock: impl Fn() -> std::time::Duration) {
    use crate::demangle::{Patience, demangled};
    const MOST: usize = 2048;
    let name = String::from_utf8_lossy(bytes);
    for name in [name.to_string(), format!("_Z{name}"), format!("_R{name}")] {
        let shown = demangled(&name, MOST, &mut Patience::of(std::time::Duration::MAX), &clock).text;
        assert!(shown.len() <= MOST + '…'.len_utf8(), "{} bytes for {name:?}", shown.len());
    }
}
