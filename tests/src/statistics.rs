//! Whether a measured share is the true one, and what a set of timings comes to.
//!
//! Shares of samples are judged in standard errors of a binomial share, √(p(1−p)/n) (W. G. Cochran, "Sampling
//! Techniques", 3rd ed., eq. 3.8). A timer samples systematically, not at random, and spreads its samples more
//! evenly than chance does: the bound is on the safe side where the work is not in step with the timer.

/// How many standard errors a comparison may be off. With 5, one honest comparison in 1.7 million fails; with 4 it were one in
/// 15,800, and hundreds are made in a run of the tests.
pub const STANDARD_ERRORS: f64 = 5.0;

/// The standard error of a share `p` of `n` samples.
#[must_use]
pub fn standard_error(p: f64, n: f64) -> f64 {
    (p * (1.0 - p) / n).sqrt()
}

/// How far the share `part` of `whole` is from `expected`, in standard errors of a share of `n` samples.
#[must_use]
pub fn deviation(part: f64, whole: f64, expected: f64, n: f64) -> f64 {
    (part / whole - expected) / standard_error(expected, n)
}

/// The middle of `values`; 0 for none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Between which of `values` the median of what they are drawn from lies, with a probability of at least 95 %: all of them for fewer than six
/// (W. J. Conover, "Practical Nonparametric Statistics", 3rd ed., §3.2; the normal approximation). 0 for none.
#[must_use]
pub fn median_bounds(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let half_width = 1.96 * (n / 4.0).sqrt();
    (quantile(values, 0.5 - half_width / n), quantile(values, 0.5 + half_width / n))
}

/// The smallest of `values` that at least the share `q` of them does not exceed; 0 for none.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index, and clamped to the last one"
    )]
    let index = ((q * sorted.len() as f64).ceil() as usize).saturating_sub(1).min(last);
    sorted.get(index).copied().unwrap_or(0.0)
}

/// The arithmetic mean of `values`; 0 for none.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// What `ratios` of like things come to, and the upper end of its two-sided 95 % confidence interval: their geometric mean, by Student's t of their
/// logarithms. (0, ∞) for fewer than two.
///
/// Not the arithmetic mean, which is above 1 where nothing differs but by chance: the mean of a ÷ b exceeds the ratio of the means by about the square of
/// b's coefficient of variation (W. G. Cochran, "Sampling Techniques", 3rd ed., §6.8), which is 0.01 where single figures scatter by a tenth. The logarithm
/// of a ratio only changes its sign where a and b change places.
#[must_use]
pub fn geometric(ratios: &[f64]) -> (f64, f64) {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    half_width(&logarithms).map_or((0.0, f64::INFINITY), |half_width| {
        let middle = mean(&logarithms);
        (middle.exp(), (middle + half_width).exp())
    })
}

/// Half the width of the two-sided 95 % confidence interval of the mean of `values`, by Student's t; `None` for fewer than two.
fn half_width(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let error = (squares / freedom as f64 / values.len() as f64).sqrt();
    Some(student(freedom) * error)
}

/// The quantile 0.975 of Student's t with so many degrees of freedom, of which there is at least one: from a table, and beyond it from the normal
/// distribution's by the series of R. A. Fisher and E. A. Cornish (M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions", 26.7.5).
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 14] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145];
    const NORMAL: f64 = 1.959_964;
    let (z, n) = (NORMAL, freedom as f64);
    let series = z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
    FEW.get(freedom - 1).copied().unwrap_or(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the standard error of a half of 100 samples, and that a share five points off is one of them away.
    #[test]
    fn a_share_is_judged_in_standard_errors() {
        assert!((standard_error(0.5, 100.0) - 0.05).abs() < 1e-12);
        assert!((deviation(55.0, 100.0, 0.5, 100.0) - 1.0).abs() < 1e-9);
    }

    /// Check the quantiles of one to five.
    #[test]
    fn quantiles_are_values_that_occurred() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        let of = |q| quantile(&values, q);
        assert_eq!([median(&values), of(0.0), of(0.99), of(1.0), quantile(&[], 0.5)], [3.0, 1.0, 5.0, 5.0, 0.0]);
    }

    /// Check the ranks for 15 values, 4 and 12 (Conover's table A3 has 0.965 between them), and that few values have all of them.
    #[test]
    fn a_median_has_bounds() {
        let values: Vec<f64> = (1..=15).map(f64::from).collect();
        assert_eq!(median_bounds(&values), (4.0, 12.0));
        assert_eq!((median_bounds(&values[..5]), median_bounds(&[])), ((1.0, 5.0), (0.0, 0.0)));
    }

    /// Check the quantiles behind the table against those of printed tables, and that they come down to the normal distribution's.
    #[test]
    fn many_values_have_the_quantile_of_as_many() {
        for (freedom, printed) in [(15, 2.131), (19, 2.093), (30, 2.042), (60, 2.000), (120, 1.980)] {
            assert!((student(freedom) - printed).abs() < 0.001, "{freedom}: {}", student(freedom));
        }
        assert!((student(1_000_000) - 1.96).abs() < 0.001);
    }

    /// Check the bounds for a textbook's set: mean 2, standard deviation 1, three values, t = 4.303.
    #[test]
    fn a_mean_has_bounds() {
        let width = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((width - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!((mean(&[]), half_width(&[1.0])), (0.0, None));
    }

    /// Check the same set as logarithms, and that chance that favours neither side makes neither larger.
    #[test]
    fn ratios_have_a_geometric_mean() {
        let (middle, upper) = geometric(&[1.0, 2.0, 3.0].map(f64::exp));
        assert!((middle.ln() - 2.0).abs() < 1e-9 && (upper.ln() - 2.0 - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        let by_chance = [0.5, 2.0, 0.8, 1.25];
        assert!((geometric(&by_chance).0 - 1.0).abs() < 1e-9);
        assert!(mean(&by_chance) > 1.13, "what the arithmetic mean makes of it");
        assert_eq!(geometric(&[1.5]), (0.0, f64::INFINITY));
    }
}
