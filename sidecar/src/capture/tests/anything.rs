//! Memory in which anything may stand.

use proptest::prelude::*;

use super::{Forged, VARIABLES, program};
use crate::capture::RuntimeFigures;
use crate::capture::contention::{self, contention};
use crate::capture::figures::figures;
use crate::capture::goroutines::goroutines;
use crate::capture::heap::heap;
use crate::capture::ticks::Speed;
use crate::capture::variables::Variables;
use crate::go::layouts;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Check that no memory is too strange: words that are small, that point into each other, or anything.
    #[test]
    fn whatever_stands_in_memory_is_read_within_bounds(
        words in proptest::collection::vec(prop_oneof![0..64_u64, (0..600_u64).prop_map(|n| n * 8), 0x1000..0x2000_u64, any::<u64>()], 600),
        minor in layouts::OLDEST..=layouts::NEWEST,
    ) {
        let memory = Forged::default().with(0, &words);
        let layout = layouts::of(minor).unwrap();
        let heap = heap(&memory, &program(), &VARIABLES, &layout, 50).unwrap();
        prop_assert!(heap.is_none_or(|heap| heap.records.len() <= 50));
        let all = goroutines(&memory, &program(), &VARIABLES, &layout, 50).unwrap();
        prop_assert!(all.is_none_or(|all| all.list.len() <= 50));
        let variables = Variables { ticks: Some(0x400), ..VARIABLES };
        for kind in [contention::Kind::Block, contention::Kind::Mutex] {
            let contention = contention(&memory, &program(), &variables, &layout, (kind, 50, &Speed::default())).unwrap();
            prop_assert!(contention.is_none_or(|contention| contention.records.len() <= 50));
        }
        let figures = figures(&memory, &Variables { collections: Some(0), ..VARIABLES }).unwrap();
        let is_sound = |figures: RuntimeFigures| {
            figures.collections <= u32::MAX.into() && figures.goal.is_some() == (figures.limit.or(figures.percent).is_some())
        };
        prop_assert!(figures.is_none_or(is_sound));
    }
}
