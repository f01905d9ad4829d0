//! Numbers that look random and are the same in every run: for the catalogue and for the load's requests.

/// A small generator (SplitMix64, Steele, Lea and Flood 2014); not for secrets.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The same seed gives the same throws.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from `low` up to, without, `high`; `low` if there is none.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.throw().checked_rem(high.saturating_sub(low)).unwrap_or(0)
    }

    /// One of them.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, choices: &[T; N]) -> T {
        const { assert!(N > 0, "there must be something to pick") };
        choices[usize::try_from(self.between(0, N as u64)).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that throws stay in their range and reach all of it.
    #[test]
    fn throws_cover_their_range() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[usize::try_from(dice.between(3, 8)).unwrap() - 3] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(dice.between(7, 7), 7);
    }
}
