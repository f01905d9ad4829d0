//! OTLP there and back, what foreign senders write, and what is refused.

use profiler_proto::otlp::{self, ExportProfilesServiceRequest};
use profiler_proto::{Limits, ProfileSet};
use proptest::prelude::*;

use crate::arbitrary::{plans, values};

fn decoded(request: ExportProfilesServiceRequest) -> ProfileSet {
    let mut sets = otlp::decode(request, &Limits::default()).unwrap();
    assert_eq!(sets.len(), 1);
    sets.remove(0)
}

proptest! {
    /// Check that a set comes back from OTLP as its compact self, and that the same set gives the same bytes.
    #[test]
    fn a_set_comes_back(plan in plans(values())) {
        let set = plan.build(false);
        prop_assume!(!set.profiles.is_empty());
        let compact = set.compacted();
        prop_assert_eq!(&compact.compacted(), &compact);
        prop_assert_eq!(&decoded(otlp::encode(&set)), &compact);
        let bytes = otlp::encode_to_vec(&set);
        prop_assert_eq!(&otlp::encode_to_vec(&compact), &bytes);
        prop_assert_eq!(otlp::decode_bytes(&bytes, &Limits::default()), Ok(vec![compact]));
    }
}
