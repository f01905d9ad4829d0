//! What a sample stands for.
//!
//! In: the usable size of a block, and the interval in force when it was sampled. Out: objects and bytes. Pure.

use std::ops::AddAssign;

/// Parts of an object in [`Weight::objects`].
const PARTS: u64 = 1 << 10;
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
    pub(super) fn of(size: u64, lg: u32) -> Self {
        if lg == 0 {
            return Self { objects: PARTS, bytes: size };
        }
        let interval = (1_u64 << lg.min(MAX_LG)) as f64;
        // `exp_m1`: for a small block, 1 - exp(-x) would be what rounding leaves of 1 - 1.
        let probability = -(-(size as f64) / interval).exp_m1();
        if probability <= 0.0 {
            return Self::default();
        }
        let rounded = |number: f64| number.round() as u64;
        Self { objects: rounded(PARTS as f64 / probability), bytes: rounded(size as f64 / probability) }
    }

    /// Whole objects.
    pub(crate) fn objects(&self) -> i64 {
        i64::try_from(self.objects.saturating_add(PARTS / 2) / PARTS).unwrap_or(i64::MAX)
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> i64 {
        i64::try_from(self.bytes).unwrap_or(i64::MAX)
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
