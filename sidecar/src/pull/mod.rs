//! Profiles that a program serves itself (`net/http/pprof`), asked for where it cannot be read from outside.
//!
//! In: an [`Endpoint`], which kinds are wanted, who the process is. Out: one set, as a capture from outside gives it ([`crate::capture::Periodic`]): what is
//! in use and which goroutines there are at the end of the window, what was allocated and waited for in it, CPU samples of some seconds. `peer`
//! asks, `totals` makes differences of what is counted from the start, `listening` says who serves where. Answers are hostile input: bounded
//! in time and bytes. On the main thread, but for decoding.

mod endpoint;
pub mod listening;
mod peer;
mod totals;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use profiler_proto::model::{AttributeSetId, Contention, Kind, LinkId, Profile, Sample, StackId};
use profiler_proto::resource::Resource;
use profiler_proto::{Limits, ProfileSet, hash, pprof};
use tokio::sync::Semaphore;

pub use self::endpoint::Endpoint;
use self::peer::Peer;
use self::totals::Totals;
use crate::capture::What;
use crate::error::Error;

/// How long a snapshot may take; of a CPU profile, beyond its seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// What an answer may be once it is decoded.
const LIMITS: Limits = Limits { bytes: 24 << 20, memory: 24 << 20, depth: 16 };

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// What the runtime keeps.
    Kept(What),
    /// CPU samples, for so long.
    Cpu(Duration),
}

impl Asked {
    fn path(self) -> String {
        match self {
            Self::Kept(what) => format!("/debug/pprof/{}", what.name()),
            Self::Cpu(duration) => format!("/debug/pprof/profile?seconds={}", duration.as_secs().max(1)),
        }
    }

    fn patience(self) -> Duration {
        match self {
            Self::Kept(_) => PATIENCE,
            Self::Cpu(duration) => duration + PATIENCE,
        }
    }
}

/// One endpoint that is asked again and again.
#[derive(Debug)]
pub struct Puller {
    peer: Arc<Peer>,
    allocated: Totals,
    blocked: Totals,
    held: Totals,
    /// When it was asked last, nanoseconds since 1970.
    asked: Option<u64>,
    turns: Arc<Turns>,
}

/// Answers may be large: so many at once are on their way, and one is decoded.
#[derive(Debug)]
pub struct Turns {
    asking: Semaphore,
    decoding: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { asking: Semaphore::new(4), decoding: Semaphore::new(1) }
    }
}

impl Puller {
    /// Begins with an endpoint.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn new(endpoint: &Endpoint, turns: Arc<Turns>) -> Result<Self, Error> {
        let (allocated, blocked, held) = Default::default();
        Ok(Self { peer: Arc::new(Peer::new(endpoint)?), allocated, blocked, held, asked: None, turns })
    }

    /// Forgets what was counted: another process serves there by now, or somebody else told the time between.
    pub fn begin_anew(&mut self) {
        (self.allocated, self.blocked, self.held) = Default::default();
        self.asked = None;
    }

    /// The name that the program calls itself by: the last part of its first argument.
    pub async fn name(&self) -> Option<String> {
        let answer = self.peer.get("/debug/pprof/cmdline", PATIENCE).await.ok()?;
        let first = answer.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(first.rsplit(|byte| *byte == b'/').next()?).into_owned();
        (!name.is_empty() && name.len() <= 255 && !name.contains(char::is_control)).then_some(name)
    }

    /// Whether profiles are served there at all.
    pub async fn is_there(&self) -> bool {
        let index = self.peer.get("/debug/pprof/", PATIENCE).await;
        index.is_ok_and(|body| body.windows(9).any(|window| window == b"goroutine"))
    }

    /// A set for each of `asked` that was answered, one after the other, and why the others were not.
    pub async fn pull(&mut self, asked: &[Asked], resource: &Resource) -> (Vec<ProfileSet>, Vec<Error>) {
        let (mut sets, mut failed) = (Vec::new(), Vec::new());
        let began = now();
        for of in asked {
            let what = format!("{}{}", self.peer.name(), of.path());
            let remedy = "see whether the program serves net/http/pprof there, and whom it lets ask";
            match self.one(*of, began).await {
                Ok(mut set) => {
                    set.resource = resource.clone();
                    set.scope.name = "profiler_sidecar".into();
                    set.scope.version = env!("CARGO_PKG_VERSION").into();
                    sets.push(set);
                }
                Err(why) => failed.push(Error::new(what, why, remedy)),
            }
        }
        self.asked = Some(began);
        (sets, failed)
    }

    async fn one(&mut self, of: Asked, began: u64) -> Result<ProfileSet, String> {
        let turns = Arc::clone(&self.turns);
        let _asking = turns.asking.acquire().await.map_err(|error| error.to_string())?;
        let body = self.peer.get(&of.path(), of.patience()).await?;
        let _decoding = turns.decoding.acquire().await.map_err(|error| error.to_string())?;
        let decoded = tokio::task::spawn_blocking(move || decode(&body)).await.map_err(|error| error.to_string())?;
        let mut set = decoded?;
        let totals = match of {
            Asked::Cpu(_) => None,
            Asked::Kept(What::Heap) => Some(&mut self.allocated),
            Asked::Kept(What::Block) => Some(&mut self.blocked),
            Asked::Kept(What::Mutex) => Some(&mut self.held),
            Asked::Kept(What::Goroutines) => None,
        };
        if let Some(totals) = totals {
            totals.since(&mut set);
        }
        rename(&mut set, of);
        let start = self.asked.unwrap_or(began).min(began);
        for profile in &mut set.profiles {
            // Of CPU the program says when and how long.
            if !matches!(of, Asked::Cpu(_)) || profile.time_unix_nanos == 0 {
                (profile.time_unix_nanos, profile.duration_nanos) = (start, (began - start).max(1));
            }
            profile.duration_nanos = profile.duration_nanos.max(1);
            profile.attributes = AttributeSetId::ZERO;
            if of == Asked::Kept(What::Heap) {
                by_stack(profile);
            }
            profile.samples.retain(|sample| sample.value != 0);
        }
        set.profiles.retain(|profile| !profile.samples.is_empty());
        Ok(set)
    }
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn decode(body: &Bytes) -> Result<ProfileSet, String> {
    pprof::decode(body, &LIMITS).map_err(|error| format!("the answer is no profile: {error}"))
}

/// Go gives its block and its mutex profile the same types; here their period types tell them apart.
fn rename(set: &mut ProfileSet, of: Asked) {
    let of = match of {
        Asked::Kept(What::Block) => Contention::Block,
        Asked::Kept(What::Mutex) => Contention::Mutex,
        _ => return,
    };
    let kinds = Kind::contention(&mut set.dictionary, of);
    for profile in &mut set.profiles {
        let kind = kinds.iter().find(|kind| kind.sample_type == profile.kind.sample_type);
        profile.kind = kind.copied().unwrap_or(profile.kind);
    }
}

/// Sums samples of one stack: Go tells those of different sizes apart, which readers of the heap do not.
fn by_stack(profile: &mut Profile) {
    let mut places: hash::Map<StackId, usize> = hash::Map::default();
    let mut samples: Vec<Sample> = Vec::new();
    for sample in &profile.samples {
        let place = *places.entry(sample.stack).or_insert(samples.len());
        match samples.get_mut(place) {
            Some(sum) => sum.value = sum.value.saturating_add(sample.value),
            None => samples.push(Sample { attributes: AttributeSetId::ZERO, link: LinkId::ZERO, ..*sample }),
        }
    }
    profile.samples = samples;
}
