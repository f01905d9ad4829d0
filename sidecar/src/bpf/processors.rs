//! Which processors are online, and how many there can be.

use crate::error::Error;

const PATH: &str = "/sys/devices/system/cpu/online";
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Most processors that Linux can be built for (`NR_CPUS`, x86_64).
const MOST: u32 = 8192;

/// Their numbers, ascending.
pub(super) fn online() -> Result<Vec<u32>, Error> {
    let remedy = "mount /sys, read-only is enough";
    let text = std::fs::read_to_string(PATH).map_err(|error| Error::new(PATH, error.to_string(), remedy))?;
    parse(&text).ok_or_else(|| Error::new(PATH, format!("it says {text:?}, which is no list of processors"), remedy))
}

/// How many there can be; as many as are online where that is not told.
pub(super) fn possible() -> Result<u32, Error> {
    let told = std::fs::read_to_string(POSSIBLE).ok().and_then(|text| parse(&text));
    let numbers = told.map_or_else(online, Ok)?;
    Ok(u32::try_from(numbers.len()).unwrap_or(MOST))
}

/// A list as `0-3,8`. Source: `Documentation/admin-guide/cputopology.rst`.
fn parse(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_single_processors_and_ranges() {
        assert_eq!(parse("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse("0,2-4,7"), Some(vec![0, 2, 3, 4, 7]));
        for wrong in ["", "1-", "3-1", "a", "0-99999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
