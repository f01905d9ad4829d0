//! CPU or memory used beyond the bound, by whatever work it was.
//!
//! In: the share of each judgement. Out: whether it is long too much, for the log, and whether work that others send waits for now: for as
//! long as pays for what was used beyond, but never for ever, for it may be other work that costs.

/// So many judgements in a row must be within the bound before it is all right again.
const CALM: u32 = 6;
/// Most judgements in a row for which others' work waits.
const MOST_OWED: u32 = 6;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Excess {
    was_hot: bool,
    is_over: bool,
    calm: u32,
    /// Judgements for which others' work still waits.
    owed: u32,
}

impl Excess {
    /// Enters how much of the bound was used: more than all of it above 1.
    pub(super) fn judge(&mut self, share: f64) {
        let is_hot = share > 1.0;
        // One busy moment, such as the start, is none to act on.
        let is_long_hot = std::mem::replace(&mut self.was_hot, is_hot) && is_hot;
        self.calm = if is_hot { 0 } else { self.calm.saturating_add(1) };
        self.is_over = is_long_hot || (self.is_over && self.calm < CALM);
        self.owed = match self.owed.checked_sub(1) {
            Some(left) => left,
            None if is_long_hot => (1..=MOST_OWED).take_while(|times| share > f64::from(*times)).count() as u32,
            None => 0,
        };
    }

    /// Whether too much is used, and not for a moment only.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether what others send waits.
    pub(super) fn puts_off(&self) -> bool {
        self.owed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one busy moment is none, that what is used beyond is paid for by waiting, and that others get their turn though the cost goes on.
    #[test]
    fn what_is_used_beyond_is_paid_for() {
        let mut excess = Excess::default();
        let mut judged = |percent: f64| {
            excess.judge(percent / 5.0);
            (excess.is_over(), excess.puts_off())
        };
        assert_eq!([20.0, 1.0, 20.0].map(&mut judged), [(false, false); 3]);
        // 12 % is paid for by two judgements of waiting.
        let paid = [12.0, 1.0, 1.0, 1.0].map(&mut judged);
        assert_eq!(paid, [(true, true), (true, true), (true, false), (true, false)]);
        assert_eq!([1.0; 3].map(&mut judged), [(true, false), (true, false), (false, false)]);
        let open = (0..100).filter(|_| !judged(500.0).1).count();
        assert!((14..=20).contains(&open), "{open}");
    }
}
