//! Judges what was received: decoded, checked, handed on or refused, and counted.
//!
//! In: the bytes of a request. Out: sets of profiles to the sink, and what the sender is told. A stranger's figures never enter our
//! accounts unchecked.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use profiler_proto::loss::stacks_of;
use profiler_proto::{DecodeError, Dictionary, Limits, Profile, ProfileSet, otlp};
use prost::Message as _;

/// Takes a set in, at once.
pub type Sink = Box<dyn Fn(ProfileSet) + Send + Sync>;

/// More stacks than a profile can stand for: two years of a thousand processors at 99 Hz.
const MOST_STACKS: u64 = 1 << 42;

/// Decodes and hands on.
pub struct Intake {
    sink: Sink,
    limits: Limits,
    figures: Figures,
    puts_off: AtomicBool,
}

/// What was received; each is counted where it happens.
#[derive(Debug, Default)]
pub struct Figures {
    /// Requests that were taken, wholly or in part.
    pub accepted: AtomicU64,
    /// Requests that were refused for good.
    pub refused: AtomicU64,
    /// Requests that were sent away for now: too many were under way, or too much CPU was used.
    pub postponed: AtomicU64,
    /// Idle connections that were closed: another one needed the place, or there was no request of HTTP/2 for too long.
    pub closed_idle: AtomicU64,
    /// Profiles that were handed on.
    pub profiles: AtomicU64,
    /// Profiles that were refused out of requests that were taken.
    pub rejected_profiles: AtomicU64,
}

impl Intake {
    /// Hands to `sink` what fits into `content` bytes.
    #[must_use]
    pub fn new(sink: Sink, content: usize) -> Self {
        let limits = Limits { bytes: content, memory: content.saturating_mul(4), ..Limits::default() };
        Self { sink, limits, figures: Figures::default(), puts_off: AtomicBool::new(false) }
    }

    /// Whether requests are to come again later from now on, however few are under way.
    pub fn put_off(&self, puts_off: bool) {
        self.puts_off.store(puts_off, Ordering::Relaxed);
    }

    /// Whether they are.
    pub(super) fn puts_off(&self) -> bool {
        self.puts_off.load(Ordering::Relaxed)
    }

    /// What was received until now.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The bytes of the answer to a request whose message is `bytes`.
    pub(super) fn take(&self, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let sets = otlp::decode_bytes(bytes, &self.limits)?;
        let mut rejections = Rejections::default();
        for mut set in sets {
            rejections.filter(&mut set);
            self.figures.profiles.fetch_add(set.profiles.len() as u64, Ordering::Relaxed);
            if !set.profiles.is_empty() {
                (self.sink)(set);
            }
        }
        self.figures.accepted.fetch_add(1, Ordering::Relaxed);
        self.figures.rejected_profiles.fetch_add(rejections.count, Ordering::Relaxed);
        Ok(ExportProfilesServiceResponse { partial_success: rejections.told() }.encode_to_vec())
    }

    /// Counts a request that was refused for good.
    pub(super) fn refused(&self) {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed because it was idle.
    pub(super) fn closed_idle(&self) {
        self.figures.closed_idle.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that may come again.
    pub(super) fn postponed(&self) {
        self.figures.postponed.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("figures", &self.figures).finish_non_exhaustive()
    }
}

/// Profiles of one request that are not taken.
#[derive(Debug, Default)]
struct Rejections {
    count: u64,
    /// Why the first one was not.
    why: &'static str,
}

impl Rejections {
    /// Takes out of `set` what cannot be kept.
    fn filter(&mut self, set: &mut ProfileSet) {
        let ProfileSet { dictionary, profiles, .. } = set;
        profiles.retain(|profile| match fault(profile, dictionary) {
            None => true,
            Some(why) => {
                self.count += 1;
                self.why = if self.count == 1 { why } else { self.why };
                false
            }
        });
    }

    /// What the sender is told (OTLP specification, "Partial Success").
    fn told(&self) -> Option<ExportProfilesPartialSuccess> {
        let rejected_profiles = i64::try_from(self.count).unwrap_or(i64::MAX);
        let told = ExportProfilesPartialSuccess { rejected_profiles, error_message: self.why.into() };
        (self.count > 0).then_some(told)
    }
}

/// Why a profile cannot be kept.
fn fault(profile: &Profile, dictionary: &Dictionary) -> Option<&'static str> {
    let named = !dictionary.strings.text(profile.kind.sample_type.kind).is_empty();
    match () {
        () if !named => Some("a profile without a sample type says nothing"),
        () if profile.kind.period < 0 => Some("a period is not negative"),
        () if stacks_of(profile, dictionary) > MOST_STACKS => Some("profiler.stacks is more than there can be"),
        () if profile.samples.iter().any(|sample| sample.value < 0) => Some("values are not negative"),
        () => None,
    }
}
