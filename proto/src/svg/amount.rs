//! Weights as people read them.
//!
//! In: a weight, its unit by the name that profiles have for it. Out: text, as the page writes it (`sdk/src/serve/page/format.js`).

const TIMES: [(f64, &str); 5] = [(3.6e12, "h"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const SIZES: [(f64, &str); 5] =
    [(1_099_511_627_776.0, "TiB"), (1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];

/// `412 ms` of `nanoseconds`, `1.24 GiB` of `bytes`, `1 sample` of `samples`, `52 goroutines` of `goroutine`.
pub(super) fn amount(weight: u64, unit: &str) -> String {
    match unit {
        "nanoseconds" if weight == 0 => "0 s".to_owned(),
        "nanoseconds" => scaled(weight, &TIMES),
        "bytes" => scaled(weight, &SIZES),
        "" => grouped(weight),
        // A word for one or for many: pprof has both.
        _ => format!(
            "{} {}{}",
            grouped(weight),
            unit.strip_suffix('s').unwrap_or(unit),
            if weight == 1 { "" } else { "s" }
        ),
    }
}

/// Three digits that count, in the greatest unit that there is one of; what is in the least is whole.
fn scaled(weight: u64, units: &[(f64, &str)]) -> String {
    let value = weight as f64;
    let (size, unit) = units.iter().find(|(least, _)| value >= *least).or(units.last()).copied().unwrap_or((1.0, ""));
    match value / size {
        _ if size == 1.0 => format!("{} {unit}", grouped(weight)),
        few if few < 10.0 => format!("{few:.2} {unit}"),
        some if some < 100.0 => format!("{some:.1} {unit}"),
        many => format!("{} {unit}", grouped(many.round() as u64)),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that digits stand in threes.
    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    /// Check that times and sizes have three digits, and all else a word for one or for many.
    #[test]
    fn amounts_are_as_people_read_them() {
        let times =
            [0, 999, 1000, 12_340_000, 4_010_101_000, 7_200_000_000_000].map(|nanos| amount(nanos, "nanoseconds"));
        assert_eq!(times, ["0 s", "999 ns", "1.00 µs", "12.3 ms", "4.01 s", "2.00 h"]);
        let sizes = [0, 1023, 1024, 13_000_000, 1 << 40].map(|bytes| amount(bytes, "bytes"));
        assert_eq!(sizes, ["0 B", "1,023 B", "1.00 KiB", "12.4 MiB", "1.00 TiB"]);
        let counts = [(1, "samples"), (1234, "samples"), (1, "goroutine"), (52, "goroutine"), (0, "objects")];
        let counts = counts.map(|(count, unit)| amount(count, unit));
        assert_eq!(amount(1234, ""), "1,234");
        assert_eq!(counts, ["1 sample", "1,234 samples", "1 goroutine", "52 goroutines", "0 objects"]);
    }
}
