//! pprof there and back, and what is refused.

use profiler_proto::{Limits, ProfileSet, pprof};
use proptest::prelude::*;

use crate::arbitrary::{label_values, plans};
use profiler_proto::resource::Resource;

/// The part of a set that pprof can hold: every profile has a sample for every stack, and only samples have attributes.
fn what_pprof_holds(mut set: ProfileSet) -> ProfileSet {
    set.resource = Resource::new();
    set.scope = Default::default();
    set = set.compacted();
    let Some(first) = set.profiles.first().cloned() else { return set };
    set.profiles.truncate(3);
    for (i, profile) in set.profiles.iter_mut().enumerate() {
        profile.attributes = Default::default();
        profile.samples = first.samples.clone();
        for sample in &mut profile.samples {
            sample.value = sample.value.wrapping_mul(i as i64 + 1);
        }
    }
    for location in set.dictionary.locations.iter() {
        assert!(location.attributes.is_zero());
    }
    set.compacted()
}

proptest! {
    /// Check that what pprof can hold comes back from it, with and without gzip, and that the same set gives the same bytes.
    #[test]
    fn a_set_comes_back(plan in plans(label_values())) {
        let set = what_pprof_holds(plan.without_frame_attributes().build(true));
        let plain = pprof::encode_uncompressed(&set);
        prop_assert_eq!(pprof::decode(&plain, &Limits::default()), Ok(set.clone()));
        let file = pprof::encode(&set);
        prop_assert_eq!(&file[..2], &[0x1f, 0x8b]);
        prop_assert_eq!(&pprof::encode(&set.compacted()), &file);
        prop_assert_eq!(pprof::decode(&file, &Limits::default()), Ok(set));
    }
}
