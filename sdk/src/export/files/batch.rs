//! What waits to be written: files with their names, which stay the same when it is tried again.
//!
//! In: a part of a set. Out: its captures as pprof files, as one message, for that is what a queue holds. Pure but for the random
//! number in a name.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use profiler_proto::{ProfileSet, pprof};
use prost::Message;

use crate::stats::{KIND_NAMES, kind_of};

/// Files of one service, to be written as they are.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export) struct Batch {
    /// What their names begin with.
    #[prost(string, tag = "1")]
    pub(super) service: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) files: Vec<PprofFile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PprofFile {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) contents: Bytes,
}

/// How many characters of a service's name stand in those of its files.
const SERVICE: usize = 100;

impl Batch {
    /// The file of `part`, which is compact, if it is one of at most so many bytes before compression.
    pub(in crate::export) fn of(part: &ProfileSet, bytes: usize) -> Option<Self> {
        let contents = pprof::is_capture(part).then(|| pprof::encode_compact(part, |key| key.into()))?;
        let service = cleaned(part.resource.service_name().unwrap_or("unknown_service"));
        let name = name(&service, part);
        (contents.len() <= bytes).then(|| Self { service, files: vec![PprofFile { name, contents: contents.into() }] })
    }

    /// The batch of a message. One that came back from disk may be anybody's: with names of other files than this makes, it is none.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn read(message: Bytes) -> Result<Self, String> {
        let batch = Self::decode(message).map_err(|error| format!("not a batch of files: {error}"))?;
        let is_ours = |file: &PprofFile| start_of(&file.name, &batch.service).is_some();
        if batch.service == cleaned(&batch.service) && batch.files.iter().all(is_ours) {
            return Ok(batch);
        }
        Err("a batch of files with names that are not ours: the spool holds what was not written by this crate"
            .to_owned())
    }

    /// The same with its files compressed, each by itself.
    pub(in crate::export) fn compressed(mut self) -> Self {
        self.files.iter_mut().for_each(|file| file.contents = pprof::compress(&file.contents).into());
        self
    }

    /// Bytes of the files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.contents.len() as u64).sum()
    }
}

fn name(service: &str, capture: &ProfileSet) -> String {
    let first = capture.profiles.first();
    let kind = first.map_or("other", |profile| kind_of(profile, &capture.dictionary));
    let start = stamp(first.map_or(0, |profile| profile.time_unix_nanos));
    // Random keys of the standard library: enough to keep names apart.
    let random = RandomState::new().hash_one(0_u8) >> 32;
    format!("{service}-{kind}-{start}-{random:08x}{ENDING}")
}

/// What all names end with.
const ENDING: &str = ".pb.gz";

/// When the profile of a file of `service` began, if it has such a name.
pub(super) fn start_of<'a>(name: &'a str, service: &str) -> Option<&'a str> {
    let mut parts = name.strip_prefix(service)?.strip_prefix('-')?.strip_suffix(ENDING)?.split('-');
    let (kind, start, random) = (parts.next()?, parts.next()?, parts.next()?);
    let fits = |(place, byte): (usize, u8)| match place {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    let is_ours = KIND_NAMES.contains(&kind)
        && start.len() == 16
        && start.bytes().enumerate().all(fits)
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_ours && parts.next().is_none()).then_some(start)
}

/// The name of a service as a part of a file's name: no separators of paths, not hidden, not too long.
fn cleaned(service: &str) -> String {
    let allowed = |(place, c): (usize, char)| match c {
        '.' if place == 0 => '_',
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
        _ => '_',
    };
    service.chars().take(SERVICE).enumerate().map(allowed).collect()
}

/// A time as `20261122T151500Z`, which sorts as time does.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years that begin in March.
fn stamp(unix_nanos: u64) -> String {
    let seconds = unix_nanos / 1_000_000_000;
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Check that times are as another implementation writes them, over all that there can be.
    #[test]
    fn times_are_those_of_the_calendar() {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        // A bit less than five days, so that all times of day come up; to the year 2554.
        for nanos in (0..=u64::MAX - 430_001_000_000_000).step_by(430_001_000_000_000) {
            let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos));
            let month = months.iter().position(|month| *month == &text[8..11]).unwrap() + 1;
            let time = text[17..25].replace(':', "");
            assert_eq!(stamp(nanos), format!("{}{month:02}{}T{time}Z", &text[12..16], &text[5..7]));
        }
    }

    /// Check that a batch which names other files than this crate makes, as one that was put into a spool by somebody else may, is none.
    #[test]
    fn a_batch_names_files_of_ours_alone() {
        const NAME: &str = "-cpu-19700101T000000Z-0000abcd.pb.gz";
        let read = |service: &str, name: String| {
            let files = vec![PprofFile { name, contents: Bytes::new() }];
            Batch::read(Batch { service: service.into(), files }.encode_to_vec().into()).is_ok()
        };
        assert!(read("shop", format!("shop{NAME}")));
        for service in ["../shop", "/tmp/shop", ".shop", "a/../../shop"] {
            assert!(!read(service, format!("{service}{NAME}")), "{service}");
        }
        for name in [format!("./../../shop{NAME}"), "/etc/passwd".into(), format!("shop{NAME}/../x"), String::new()] {
            assert!(!read("shop", name.clone()), "{name}");
        }
        assert!(Batch::read(Bytes::from_static(&[0xff])).is_err());
    }

    /// Check that a service's files are known by their names, and no other's.
    #[test]
    fn files_are_known_by_their_names() {
        let mut set = ProfileSet::default();
        set.profiles.push(profiler_proto::Profile::default());
        let name = name("shop", &set);
        assert_eq!(start_of(&name, "shop"), Some("19700101T000000Z"), "{name}");
        for (name, service) in [
            (name.as_str(), "sho"),
            (name.as_str(), "shop-other"),
            ("shop-cpu-19700101T000000Z-0000abcd.pb.gz", "shop-cpu"),
            ("shop-web-cpu-19700101T000000Z-0000abcd.pb.gz", "shop"),
            ("shop-cpu-19700101T000000Z-0000abcd.pb.gz.bak", "shop"),
            (".shop-cpu-19700101T000000Z-0000abcd.pb.gz", "shop"),
            ("shop-cpu-1970010T1000000Z-0000abcd.pb.gz", "shop"),
            ("shop-cpu-19700101T000000Z-0000abc.pb.gz", "shop"),
            ("shop-wall-19700101T000000Z-0000abcd.pb.gz", "shop"),
            ("shop-cpu-19700101T00000éZ-0000abcd.pb.gz", "shop"),
            ("shop-cpu-yesterday-0000abcd.pb.gz", "shop"),
        ] {
            assert_eq!(start_of(name, service), None, "{name} of {service}");
        }
    }

    /// Check that no name of a service leads out of the folder, hides its files, or is too long for a name.
    #[test]
    fn names_of_services_are_cleaned() {
        assert_eq!(cleaned("../etc/naïve shop"), "_._etc_na_ve_shop");
        assert_eq!(cleaned(&"x".repeat(300)).len(), SERVICE);
    }
}
