//! What a sample stands for.
//!
//! In: the usable size of a block, and the interval that the sample was drawn with. Out: objects and bytes. Pure.

use std::ops::AddAssign;

/// Parts of an object in [`Weight::parts`].
pub(crate) const PARTS: u64 = 1 << 10;
/// Below, the next term of the series is less than 2e-11 of the whole.
const SMALL: f64 = 0.25;
/// The longest interval, as a power of two, that is told apart from longer ones.
pub(super) const MAX_LG: u32 = 48;

/// Objects and bytes: of one sample, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// In 1/1024, so that sums are exact and small ones lose nothing.
    objects: u64,
    bytes: u64,
}

impl Weight {
    /// Of one sample of `size` usable bytes, taken at one per `2^lg` bytes on average.
    ///
    /// A block is sampled with probability `p = 1 - exp(-size / 2^lg)`, so it stands for `1 / p` of its kind.
    pub(crate) fn of(size: u64, lg: u32) -> Self {
        if lg == 0 {
            return Self { objects: PARTS, bytes: size };
        }
        let interval = (1_u64 << lg.min(MAX_LG)) as f64;
        let objects = one_by_probability(size as f64 / interval);
        // `round` may be a call of the C library, as below.
        let rounded = |number: f64| (number + 0.5) as u64;
        Self { objects: rounded(PARTS as f64 * objects), bytes: rounded(size as f64 * objects) }
    }

    /// Of `blocks` samples of one stack that have `bytes` usable bytes in all, as a dump of jemalloc counts them: each stands for as many as one
    /// of their mean size does.
    ///
    /// Source: jemalloc 5.3.0, bin/jeprof.in, `AdjustSamples`; Go has the same (runtime/pprof/protomem.go, `scaleHeapSample`). Since 5.3.0 jemalloc
    /// writes such numbers that what comes out is without bias also where sizes differ (src/prof_data.c, `prof_do_unbias`).
    pub(super) fn of_dumped(blocks: u64, bytes: u64, interval: u64) -> Self {
        if blocks == 0 || bytes == 0 {
            return Self::default();
        }
        let (blocks, bytes) = (blocks as f64, bytes as f64);
        let objects = one_by_probability(bytes / blocks / interval.max(1) as f64);
        let rounded = |number: f64| number.round() as u64;
        Self { objects: rounded(PARTS as f64 * blocks * objects), bytes: rounded(bytes * objects) }
    }

    /// Objects, in [`PARTS`] of one: a sample of a block about as large as the interval stands for one and a half.
    pub(crate) fn parts(&self) -> u64 {
        self.objects
    }

    /// Whole objects.
    #[cfg(test)]
    pub(super) fn objects(&self) -> i64 {
        i64::try_from(self.objects.saturating_add(PARTS / 2) / PARTS).unwrap_or(i64::MAX)
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is here beyond `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            objects: self.objects.saturating_sub(earlier.objects),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// `1 / (1 - exp(-x))`; 0 where there is nothing.
fn one_by_probability(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x < SMALL {
        // The first terms of its series, by the numbers of Bernoulli: the C library's code, which nobody else asks for and which so is in
        // no cache, would take as long as several frames of the walk.
        let square = x * x;
        return 1.0 / x + 0.5 + x * (1.0 / 12.0 - square * (1.0 / 720.0 - square * (1.0 / 30240.0)));
    }
    // `exp_m1`: 1 - exp(-x) would be what rounding leaves of 1 - 1.
    -1.0 / (-x).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sampling blocks of any size with their probability gives back how many there were, on average.
    #[test]
    fn weights_make_up_for_what_was_not_sampled() {
        const LG: u32 = 19;
        for size in [8_u64, 100, 4096, 1 << 16, 1 << 19, 1 << 24] {
            let Weight { objects, bytes } = Weight::of(size, LG);
            let probability = 1.0 - (-(size as f64) / (1_u64 << LG) as f64).exp();
            let mean = |weight: f64, truth: f64| (probability * weight / truth - 1.0).abs();
            assert!(mean(objects as f64 / 1024.0, 1.0) < 1e-3, "{size}: {objects}");
            assert!(mean(bytes as f64, size as f64) < 1e-3, "{size}: {bytes}");
        }
    }

    /// Check that the series says what the function says, and where it is left also beyond.
    #[test]
    fn the_series_is_the_function() {
        for x in [1e-12, 1e-6, 0.001, 0.1, 0.2499, SMALL, 0.2501, 1.0, 30.0, 1e9] {
            let exact = -1.0 / (-x).exp_m1();
            assert!((one_by_probability(x) / exact - 1.0).abs() < 2e-11, "{x}");
        }
        assert_eq!(one_by_probability(0.0), 0.0);
    }

    /// Check that samples of one size in a dump stand for as many as they do one by one, that of others their mean size counts, and that numbers
    /// which cannot be make no nonsense.
    #[test]
    fn dumped_samples_weigh_as_their_mean() {
        for size in [100, 4096, 1 << 19, 1 << 24] {
            let one = Weight::of(size, 19);
            let many = Weight::of_dumped(1000, 1000 * size, 1 << 19);
            assert!((many.bytes / 1000).abs_diff(one.bytes) <= 1, "{size}: {many:?} {one:?}");
            assert!((many.objects / 1000).abs_diff(one.objects) <= 1, "{size}: {many:?} {one:?}");
        }
        let mean = Weight::of_dumped(2, 6000, 1 << 12);
        assert_eq!((mean.objects(), mean.bytes()), (4, (6000.0 / (1.0 - (-3000.0_f64 / 4096.0).exp())).round() as u64));
        assert_eq!((Weight::of_dumped(0, 9, 1), Weight::of_dumped(9, 0, 1)), (Weight::default(), Weight::default()));
        let most = Weight::of_dumped(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!((most.objects, most.bytes), (u64::MAX, u64::MAX));
        let all = Weight::of_dumped(1, u64::MAX, 0);
        assert_eq!((all.objects(), all.bytes), (1, u64::MAX));
    }

    /// Check the ends: all sampled, next to nothing sampled, no size.
    #[test]
    fn the_ends_are_numbers() {
        assert_eq!((Weight::of(100, 0).objects(), Weight::of(100, 0).bytes()), (1, 100));
        assert_eq!(Weight::of(0, 19), Weight::default());
        let rare = Weight::of(8, 63);
        assert!(rare.objects() > 1 << 40 && rare.bytes() > 1 << 40);
        let large = Weight::of(1 << 40, 19);
        assert_eq!((large.objects(), large.bytes()), (1, 1 << 40));
    }
}
