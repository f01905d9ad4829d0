//! Profiles that a program serves itself (`net/http/pprof`), asked for where it cannot be read from outside.
//!
//! In: an [`Endpoint`], which kinds are wanted, who the process is. Out: a set of each kind that was answered, as a capture from outside gives it ([`crate::capture::Periodic`]): what is
//! in use and which goroutines there are at the end of the window, what was allocated and waited for in it, CPU samples of some seconds. `peer`
//! asks, `tls` says whom to believe, `totals` makes differences of what is counted from the start, `listening` says who serves where. Answers are hostile input: bounded
//! in time and bytes. On the main thread, but for decoding.

mod endpoint;
mod head;
pub mod listening;
mod peer;
mod tls;
mod totals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use profiler_proto::model::{AttributeSetId, Contention, Kind, LinkId, Profile, Sample, StackId};
use profiler_proto::resource::Resource;
use profiler_proto::{Limits, ProfileSet, hash, pprof};
use tokio::sync::Semaphore;

pub use self::endpoint::{Endpoint, is_ours};
use self::peer::{Body, Peer, Permits, Unanswered};
pub use self::tls::Tls;
use self::totals::Totals;
use crate::capture::{Room, Taken, What};
use crate::error::Error;

/// How long a snapshot may take; of a CPU profile, beyond its seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to say whether profiles are served: who takes longer is tried again.
const PROBED: Duration = Duration::from_secs(3);
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
    /// What the runtime keeps, where that is asked for.
    #[must_use]
    pub fn kept(self) -> Option<What> {
        match self {
            Self::Kept(what) => Some(what),
            Self::Cpu(_) => None,
        }
    }

    fn path(self) -> String {
        match self {
            Self::Kept(what) => format!("/debug/pprof/{}", what.name()),
            Self::Cpu(duration) => format!("/debug/pprof/profile?seconds={}", duration.as_secs().max(1)),
        }
    }

    /// Leaves the profiles that are asked for.
    ///
    /// # Errors
    /// When there are none.
    fn keep(self, set: &mut ProfileSet) -> Result<(), String> {
        let types: &[&str] = match self {
            Self::Kept(What::Heap) => &["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"],
            Self::Kept(What::Goroutines) => &["goroutine"],
            Self::Kept(What::Block | What::Mutex) => &["contentions", "delay"],
            Self::Cpu(_) => &["samples", "cpu"],
        };
        let strings = &set.dictionary.strings;
        let had = set.profiles.len();
        set.profiles.retain(|profile| types.contains(&strings.text(profile.kind.sample_type.kind)));
        match set.profiles.is_empty() && had > 0 {
            true => Err("the answer is a profile of something else".to_owned()),
            false => Ok(()),
        }
    }

    fn patience(self, snapshot: Duration) -> Duration {
        match self {
            Self::Kept(_) => snapshot,
            Self::Cpu(duration) => duration + snapshot,
        }
    }
}

/// What came of one round of questions.
#[derive(Debug, Default)]
pub struct Pulled {
    /// What was answered, and to what.
    pub sets: Vec<(Asked, ProfileSet)>,
    /// Why the rest was not.
    pub failed: Vec<Error>,
    /// The room that the sets take, as long as they are here.
    pub kept: Vec<Taken>,
}

/// One endpoint that is asked again and again.
#[derive(Debug)]
pub struct Puller {
    peer: Arc<Peer>,
    allocated: Totals,
    blocked: Totals,
    held: Totals,
    /// Whether anything was in use when it was asked last.
    has_in_use: bool,
    /// When it was asked last, nanoseconds since 1970.
    asked: Option<u64>,
    turns: Arc<Turns>,
    patience: Duration,
}

/// What endpoints take turns at: each is asked by itself, and hangs by itself; large answers wait for each other, and one is decoded. What all of them keep has one bound.
#[derive(Debug)]
pub struct Turns {
    permits: Permits,
    decoding: Semaphore,
    kept: Room,
}

impl Default for Turns {
    fn default() -> Self {
        Self { permits: Permits::default(), decoding: Semaphore::new(1), kept: Room::of(MOST_KEPT) }
    }
}

/// Most bytes of answers of all endpoints that were decoded and not handed on yet, and of what was counted until then: those of a large program have some four million.
const MOST_KEPT: usize = 64 << 20;

fn no_room() -> Unanswered {
    let why = format!("no room for the answer: those of all programs may take {} MiB", MOST_KEPT >> 20);
    Unanswered { remedy: "pull fewer programs, or have those with large profiles read from outside", ..why.into() }
}

impl Puller {
    /// Begins with an endpoint.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn new(endpoint: &Endpoint, turns: Arc<Turns>) -> Result<Self, Error> {
        let (allocated, blocked, held) = Default::default();
        Ok(Self {
            peer: Arc::new(Peer::new(endpoint)?),
            allocated,
            blocked,
            held,
            has_in_use: false,
            asked: None,
            turns,
            patience: PATIENCE,
        })
    }

    /// Forgets what was counted: another process serves there by now, or somebody else told the time between.
    pub fn begin_anew(&mut self) {
        (self.allocated, self.blocked, self.held) = Default::default();
        (self.has_in_use, self.asked) = (false, None);
    }

    /// Forgets what was counted of all but these kinds, which nobody asks for any more.
    pub fn keep(&mut self, kinds: &[What]) {
        let totals =
            [(What::Heap, &mut self.allocated), (What::Block, &mut self.blocked), (What::Mutex, &mut self.held)];
        totals
            .into_iter()
            .filter(|(what, _)| !kinds.contains(what))
            .for_each(|(_, totals)| *totals = Totals::default());
    }

    /// The addresses of this machine at which it is asked from now on; none, where it is another one's. A name is looked up each time: it may be a name of this
    /// machine, too.
    ///
    /// # Errors
    /// When its name cannot be looked up.
    pub async fn locate(&self) -> Result<Vec<SocketAddr>, Error> {
        let unknown = |Unanswered { why, .. }| {
            Error::new(self.peer.name(), why, "see whether the name is right, and whom names are asked of")
        };
        self.peer.locate(PATIENCE, &self.turns.permits).await.map_err(unknown)
    }

    /// The name that the program calls itself by: the last part of its first argument.
    pub async fn name(&self) -> Option<String> {
        let answer = self.peer.get("/debug/pprof/cmdline", PATIENCE, &self.turns.permits).await.ok()?;
        let first = answer.bytes.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(first.rsplit(|byte| *byte == b'/').next()?).into_owned();
        (!name.is_empty() && name.len() <= 255 && !name.contains(char::is_control)).then_some(name)
    }

    /// Whether profiles are served there at all.
    pub async fn is_there(&self) -> bool {
        let index = self.peer.get("/debug/pprof/", PROBED, &self.turns.permits).await;
        index.is_ok_and(|body| body.bytes.windows(9).any(|window| window == b"goroutine"))
    }

    /// A set for each of `asked` that was answered, one after the other, and why the others were not. Once there was no answer in time, the others are left for
    /// the next time.
    pub async fn pull(&mut self, asked: &[Asked], resource: &Resource) -> Pulled {
        let (mut pulled, mut is_late) = (Pulled::default(), false);
        let began = now();
        for of in asked {
            let what = format!("{}{}", self.peer.name(), of.path());
            let answer = match is_late {
                true => Err("not asked, as there was no answer to the question before it".into()),
                false => self.one(*of, began).await,
            };
            match answer {
                Ok((mut set, kept)) => {
                    set.resource = resource.clone();
                    set.scope.name = "profiler_sidecar".into();
                    set.scope.version = env!("CARGO_PKG_VERSION").into();
                    pulled.sets.push((*of, set));
                    pulled.kept.push(kept);
                }
                Err(Unanswered { why, remedy, is_late: late }) => {
                    is_late |= late;
                    pulled.failed.push(Error::new(what, why, remedy));
                }
            }
        }
        self.asked = Some(began);
        pulled
    }

    /// What is answered, and the room that it takes.
    async fn one(&mut self, of: Asked, began: u64) -> Result<(ProfileSet, Taken), Unanswered> {
        let turns = Arc::clone(&self.turns);
        let body = self.peer.get(&of.path(), of.patience(self.patience), &turns.permits).await?;
        let _decoding = turns.decoding.acquire().await?;
        let mut set = tokio::task::spawn_blocking(move || decode(&body)).await??;
        of.keep(&mut set)?;
        let kept = turns.kept.take(set.memory_bytes()).ok_or_else(no_room)?;
        let totals = match of {
            Asked::Kept(What::Heap) => Some(&mut self.allocated),
            Asked::Kept(What::Block) => Some(&mut self.blocked),
            Asked::Kept(What::Mutex) => Some(&mut self.held),
            Asked::Kept(What::Goroutines) | Asked::Cpu(_) => None,
        };
        let last = match totals {
            Some(totals) => totals.since(&mut set, began, &turns.kept).ok_or_else(no_room)?,
            None => None,
        };
        rename(&mut set, of);
        // Of differences the time since the last answer.
        let start = last.or(self.asked).unwrap_or(began).min(began);
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
            // None can be negative.
            profile.samples.retain(|sample| sample.value > 0);
        }
        let had_in_use = of == Asked::Kept(What::Heap) && self.has_in_use;
        let has_in_use = leave_told(&mut set, had_in_use);
        if of == Asked::Kept(What::Heap) {
            self.has_in_use = has_in_use;
        }
        Ok((set, kept))
    }
}

fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn decode(body: &Body) -> Result<ProfileSet, String> {
    let set = pprof::decode(&body.bytes, &LIMITS);
    set.map(|set| set.of_known_builds()).map_err(|error| format!("the answer is no profile: {error}"))
}

/// Leaves profiles with samples, and of states also those without where there was something before: that nothing is in use any more is a state, too; where nothing was, the program may
/// have it off. Whether there is something now.
fn leave_told(set: &mut ProfileSet, had_any: bool) -> bool {
    let ProfileSet { profiles, dictionary, .. } = set;
    let has_any = profiles.iter().any(|profile| profile.kind.is_state(dictionary) && !profile.samples.is_empty());
    let is_told = had_any || has_any;
    profiles.retain(|profile| !profile.samples.is_empty() || is_told && profile.kind.is_state(dictionary));
    has_any
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

#[cfg(test)]
mod tests {
    use profiler_proto::model::Dictionary;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    /// Takes connections, and answers each question so; nothing: not at all. The puller, and how many were asked.
    async fn served(answer: &'static [u8], turns: &Arc<Turns>) -> (Puller, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let asked = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                drop(stream.read(&mut [0; 1024]).await);
                counted.add_permits(1);
                drop(stream.write_all(answer).await);
                held.extend(answer.is_empty().then_some(stream));
            }
        });
        (Puller::new(&endpoint, Arc::clone(turns)).unwrap(), asked)
    }

    /// Check that endpoints that take every question and answer none hold up no other one: while five of them are waited for, for ten minutes each, one that answers is
    /// asked for all there is.
    #[test]
    fn who_hangs_holds_up_nobody_else() {
        const LONG: Duration = Duration::from_secs(60);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let turns = Arc::<Turns>::default();
            let mut hung = JoinSet::new();
            for _ in 0..5 {
                let (mut puller, asked) = served(b"", &turns).await;
                hung.spawn(async move { puller.pull(&[Asked::Cpu(Duration::from_secs(600))], &Resource::new()).await });
                // Not all are asked where they hold up each other.
                drop(timeout(Duration::from_secs(5), asked.acquire()).await);
            }
            let (mut good, _) = served(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", &turns).await;
            let kept = What::ALL.map(Asked::Kept);
            let Pulled { sets, failed, .. } =
                timeout(LONG, good.pull(&kept, &Resource::new())).await.expect("it is held up");
            assert_eq!((sets.len(), failed.len()), (0, 4));
            assert!(failed.iter().all(|why| why.to_string().contains("it answers 404 Not Found")), "{failed:?}");
            assert!(hung.try_join_next().is_none());
        });
    }

    /// Check that memory in use that falls to nothing is told as nothing, once, and that a heap in which nothing ever was is told as none.
    #[test]
    fn that_nothing_is_in_use_any_more_is_told() {
        let told = |in_use: usize, had_any: bool| {
            let mut set = ProfileSet::default();
            for kind in Kind::heap(&mut set.dictionary, 1) {
                let samples = if kind.is_state(&set.dictionary) { in_use } else { 0 };
                let samples = vec![Sample { value: 1, ..Default::default() }; samples];
                set.profiles.push(Profile { kind, samples, ..Profile::default() });
            }
            let has_any = leave_told(&mut set, had_any);
            (set.profiles.len(), has_any)
        };
        let steps = [(0, false), (1, false), (1, true), (0, true), (0, false)];
        assert_eq!(
            steps.map(|(in_use, had)| told(in_use, had)),
            [(0, false), (2, true), (2, true), (2, false), (0, false)]
        );
    }

    /// Check that what was not asked for is not taken for an answer, whatever path it is served at, and that what else comes with it goes.
    #[test]
    fn an_answer_is_of_the_kind_that_was_asked_for() {
        let asked = [What::ALL.map(Asked::Kept).to_vec(), vec![Asked::Cpu(Duration::ZERO)]].concat();
        let kinds = |of: Asked, dictionary: &mut Dictionary| match of {
            Asked::Kept(What::Heap) => Kind::heap(dictionary, 1).to_vec(),
            Asked::Kept(What::Goroutines) => vec![Kind::goroutine(dictionary)],
            Asked::Kept(What::Block | What::Mutex) => Kind::contention(dictionary, Contention::Block).to_vec(),
            Asked::Cpu(_) => vec![Kind::cpu(dictionary, 1)],
        };
        for (of, other) in asked.iter().flat_map(|of| asked.iter().map(move |other| (*of, *other))) {
            let mut set = ProfileSet::default();
            let answered = [kinds(other, &mut set.dictionary), vec![Kind::threads(&mut set.dictionary)]].concat();
            set.profiles = answered.into_iter().map(|kind| Profile { kind, ..Profile::default() }).collect();
            let all = set.profiles.len();
            // Go gives both the same types.
            let is_same =
                of == other || [of, other].iter().all(|of| matches!(of, Asked::Kept(What::Block | What::Mutex)));
            assert_eq!((of.keep(&mut set).is_ok(), set.profiles.len()), (is_same, if is_same { all - 1 } else { 0 }));
        }
        assert_eq!(Asked::Cpu(Duration::ZERO).keep(&mut ProfileSet::default()), Ok(()));
    }

    /// Check that a difference says since when it is, where a question between had no answer.
    #[test]
    fn a_difference_is_of_all_the_time_since_the_last_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let turns = Arc::default();
            let mut puller = served(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", &turns).await.0;
            let asked = [Asked::Kept(What::Heap)];
            let heap = |bytes: i64| {
                let mut set = ProfileSet::default();
                let [_, kind, ..] = Kind::heap(&mut set.dictionary, 1);
                let samples = vec![Sample { value: bytes, ..Sample::default() }];
                set.profiles.push(Profile { kind, samples, ..Profile::default() });
                set
            };
            assert_eq!(puller.allocated.since(&mut heap(5), 100, &turns.kept), Some(None));
            puller.asked = Some(100);
            let Pulled { sets, failed, .. } = puller.pull(&asked, &Resource::new()).await;
            assert_eq!((sets.len(), failed.len()), (0, 1));
            assert!(puller.asked > Some(100));
            let mut second = heap(9);
            assert_eq!(puller.allocated.since(&mut second, 300, &turns.kept), Some(Some(100)));
            assert_eq!(second.profiles[0].samples[0].value, 4);
            assert_eq!(puller.allocated.since(&mut heap(9), 400, &turns.kept), Some(Some(300)));
        });
    }

    /// Check that answers take of the room that all share, as long as they are kept: who finds none is told what to do, and has the next answer once there is.
    #[test]
    fn answers_share_their_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut set = ProfileSet::default();
            let kind = Kind::goroutine(&mut set.dictionary);
            let samples = vec![Sample { value: 5, ..Sample::default() }];
            set.profiles.push(Profile { kind, samples, ..Profile::default() });
            let body = pprof::encode(&set);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let answer = [head.as_bytes(), &body].concat().leak();
            let needed = pprof::decode(&body, &LIMITS).unwrap().memory_bytes();
            let turns = Arc::new(Turns { kept: Room::of(needed * 3 / 2), ..Turns::default() });
            let ([mut first, mut second], asked) =
                ([served(answer, &turns).await.0, served(answer, &turns).await.0], [Asked::Kept(What::Goroutines)]);
            let resource = Resource::new();
            let kept = first.pull(&asked, &resource).await;
            assert_eq!((kept.sets.len(), kept.failed.len()), (1, 0));
            let refused = second.pull(&asked, &resource).await;
            let why = refused.failed[0].to_string();
            assert!(refused.sets.is_empty() && why.contains("no room for the answer"), "{why}");
            assert!(why.contains("pull fewer programs"), "{why}");
            drop(kept);
            assert_eq!(second.pull(&asked, &resource).await.sets.len(), 1);
        });
    }

    /// Check that who does not answer is asked once a round, not for each kind.
    #[test]
    fn who_does_not_answer_is_asked_once_a_round() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut puller, asked) = served(b"", &Arc::default()).await;
            puller.patience = Duration::from_millis(100);
            let Pulled { sets, failed, .. } = puller.pull(&What::ALL.map(Asked::Kept), &Resource::new()).await;
            assert_eq!((sets.len(), failed.len(), asked.available_permits()), (0, 4, 1));
            assert!(failed[0].to_string().contains("no answer within 100ms"), "{failed:?}");
            assert!(failed[3].to_string().contains("not asked"), "{failed:?}");
        });
    }
}
