//! Programs that serve profiles themselves, asked again and again for what is not read of them from outside.
//!
//! In: the endpoints of the settings, and those that are found ([`super::finding`]). Out: sets, the way of all others. Whose socket it is, is looked up each time,
//! before and after ([`super::whose`]): the set then has that process's resource, and no kind that is read of it from outside, nor CPU where that is sampled. Tasks
//! of the main thread, one for each endpoint; what reads `/proc` or decodes is done on a thread of the runtime's.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::resource::Resource;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::finding::{Found, Refused, lock};
use super::outside::{Readings, keep_told};
use super::sights::{Sight, Sights};
use super::source::Handle;
use super::whose::Whose;
use crate::capture::What;
use crate::config::{Config, DEFAULT_RUNTIME_INTERVAL};
use crate::discover::{Kind, Target};
use crate::error::Error;
use crate::pull::listening::Socket;
use crate::pull::{Asked, Endpoint, Pulled, Puller, Turns};
use crate::target::Process;

/// When endpoints are asked first: by then it is known what is read from outside.
const FIRST: Duration = Duration::from_secs(4);
/// Longest CPU profile; a shorter interval has shorter ones.
const CPU: Duration = Duration::from_secs(10);
/// Where sets go.
pub(super) type Sink = dyn Fn(ProfileSet) + Send + Sync;

/// What became of pulls.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Endpoints that are asked.
    pub(super) endpoints: AtomicU64,
    /// Answers that were handed on.
    pub(super) sets: AtomicU64,
    /// Questions without a usable answer: the log says why.
    pub(super) failed: AtomicU64,
    /// Questions that were not asked, as the answer is read from outside.
    pub(super) from_outside: AtomicU64,
}

/// Who is asked, and how often.
#[derive(Clone)]
pub(super) struct Pulls {
    pub(super) handle: Handle,
    pub(super) endpoints: Vec<Endpoint>,
    /// How those are asked that are found: the first way that they answer.
    pub(super) finding: Vec<Endpoint>,
    /// Whether runtimes are read from outside at all.
    is_captured: bool,
    pub(super) every: Duration,
    pub(super) turns: Arc<Turns>,
    /// Processes that are asked at a socket that was found, or are tried: each at one, by one task.
    pub(super) found: Arc<Mutex<HashSet<Process>>>,
    /// Sockets and processes that are asked at an address of the settings, by the number of its task: each at one, and at none that was found.
    named: Arc<Mutex<HashMap<usize, Claim>>>,
    /// Sockets that were found in vain.
    pub(super) refused: Arc<Mutex<Refused>>,
    sights: Arc<Sights>,
}

impl Pulls {
    pub(super) fn new(config: &Config, handle: &Handle) -> Self {
        Self {
            handle: handle.clone(),
            endpoints: config.pulls.clone(),
            finding: config.pull_found.clone(),
            is_captured: config.runtime_interval.is_some(),
            every: config.runtime_interval.unwrap_or(DEFAULT_RUNTIME_INTERVAL),
            turns: Arc::default(),
            found: Arc::default(),
            named: Arc::default(),
            refused: Arc::default(),
            sights: Arc::default(),
        }
    }

    /// What listens where now.
    pub(super) async fn look(&self) -> Arc<Sight> {
        self.sights.look(|| self.handle.targets_known()).await
    }

    /// Starts a task for each endpoint, and one that finds others.
    pub(super) fn start(&self, sink: &Arc<Sink>) {
        for (number, endpoint) in self.endpoints.iter().enumerate() {
            match Puller::new(endpoint, Arc::clone(&self.turns)) {
                Ok(puller) => {
                    self.handle.pulls.endpoints.fetch_add(1, Ordering::Relaxed);
                    let task = Task::new(self.clone(), endpoint.clone(), puller, Arc::clone(sink));
                    tokio::spawn(task.run_named(number));
                }
                Err(error) => tracing::error!("profiles are not pulled: {error}"),
            }
        }
        if !self.finding.is_empty() {
            tokio::spawn(self.clone().find(Arc::clone(sink)));
        }
    }

    /// Whether a process is asked at an address of the settings.
    pub(super) fn is_named(&self, process: Process) -> bool {
        lock(&self.named).values().any(|named| named.process == Some(process))
    }

    /// Takes who answers for what is asked by this task, unless another one does.
    fn claim(&self, task: usize, claim: Claim) -> bool {
        fn is_one<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_some() && one == other
        }
        let mut named = lock(&self.named);
        named.remove(&task);
        let is_taken = |other: &Claim| is_one(&other.socket, &claim.socket) || is_one(&other.process, &claim.process);
        let is_free = !named.values().any(is_taken);
        if is_free {
            named.insert(task, claim);
        }
        is_free
    }

    pub(super) fn ticks(&self, every: Duration) -> tokio::time::Interval {
        let mut ticks = interval_at(Instant::now() + FIRST.min(every), every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// What is read of none of these processes from outside, so is to be asked for; `None`: that is not known yet.
    pub(super) fn wanted(&self, targets: &[Arc<Target>]) -> Option<Vec<Asked>> {
        let mut read = Vec::new();
        for target in targets.iter().filter(|target| self.is_captured && is_captured(target)) {
            read.extend(self.handle.outside.read(target.process)?);
        }
        let kept = What::ALL.into_iter().filter(|what| !read.contains(what)).map(Asked::Kept);
        let cpu = Asked::Cpu((self.every / 2).min(CPU));
        let is_sampled = targets.iter().any(|target| self.handle.samples(target));
        Some(kept.chain((!is_sampled).then_some(cpu)).collect())
    }
}

/// Who is asked at an address: a socket, the process that answers there; as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Claim {
    socket: Option<Socket>,
    process: Option<Process>,
}

/// One endpoint that is asked.
pub(super) struct Task {
    pulls: Pulls,
    endpoint: Endpoint,
    /// Where that is on this machine; nowhere, where it is another one's.
    local: Vec<SocketAddr>,
    puller: Puller,
    sink: Arc<Sink>,
    /// Who answered last.
    last: Option<Answering>,
    /// What was read, by process, for each that may have answered and is read from outside, too.
    readings: HashMap<Process, Readings>,
    /// What was wrong is said once.
    is_said: bool,
    /// That it is a guess who answers is said once, too.
    is_guessed: bool,
    /// What was said last of what comes of it: whether anything is asked for.
    is_asked: Option<bool>,
}

impl Task {
    pub(super) fn new(pulls: Pulls, endpoint: Endpoint, puller: Puller, sink: Arc<Sink>) -> Self {
        let local = endpoint.local();
        let (last, readings, is_said, is_guessed, is_asked) = Default::default();
        Self { pulls, endpoint, local, puller, sink, last, readings, is_said, is_guessed, is_asked }
    }

    /// Asks at a socket that was found, as long as it, and no other one, is reached there, and no address of its process is named. Whether anything was asked.
    pub(super) async fn run_found(mut self, (process, socket): Found) -> bool {
        let (mut ticks, mut is_asked) = (self.pulls.ticks(self.pulls.every), false);
        // Who found it said so.
        self.is_asked = Some(true);
        loop {
            ticks.tick().await;
            match self.look().await {
                Ok(seen) if seen.identity() == (Some(socket), Some(vec![process])) && !self.pulls.is_named(process) => {
                    self.round(&seen, &seen, None).await;
                }
                _ => return is_asked,
            }
            is_asked = true;
        }
    }

    /// Asks at an address of the settings as long as the agent runs, whoever answers there, unless it is asked at another one.
    async fn run_named(mut self, number: usize) {
        let mut ticks = self.pulls.ticks(self.pulls.every);
        loop {
            ticks.tick().await;
            match self.puller.locate().await {
                Ok(local) => self.local = local,
                Err(why) => {
                    self.pulls.claim(number, Claim::default());
                    self.fail(&[why]);
                    continue;
                }
            }
            // Who is there was not looked at yet: whose socket it is cannot be told.
            if self.pulls.handle.targets_known().is_empty() && !self.local.is_empty() {
                continue;
            }
            let seen = match self.look().await {
                Ok(seen) => seen,
                Err(why) => {
                    self.pulls.claim(number, Claim::default());
                    self.fail(&[why]);
                    continue;
                }
            };
            let (whose, name) = self.whose(&seen).await;
            let claim = Claim { socket: whose.socket, process: whose.one().map(|target| target.process) };
            if !self.pulls.claim(number, claim) {
                // What it counted meanwhile is told by who asks it.
                self.begin_anew();
                let why = "the process that answers there is asked at another address of the settings";
                self.fail(&[Error::new(self.endpoint.name(), why, "name one address of each process")]);
            } else if !self.round(&seen, &whose, name).await {
                // Where it serves nothing, another address is as good.
                self.pulls.claim(number, Claim::default());
            }
        }
    }

    /// Who of those who were seen answers, and what the program calls itself where that has to be asked: another one may be started there at any time.
    async fn whose(&self, seen: &Whose) -> (Whose, Option<String>) {
        if !seen.is_guess && (seen.one().is_some() || self.endpoint.service.is_some()) {
            return (seen.clone(), None);
        }
        let last = self.last.as_ref().filter(|last| last.socket == seen.socket);
        let name = self.puller.name().await.or_else(|| last?.name.clone());
        let whose = if seen.is_guess { seen.of_name(name.as_deref()) } else { seen.clone() };
        (whose, name)
    }

    /// Asks once, of those who were `seen` the one who answers; whether anything was answered, or nothing could be told of it: nothing needed to be asked, or it is not known yet
    /// what does, or who answered was replaced meanwhile.
    async fn round(&mut self, seen: &Whose, whose: &Whose, name: Option<String>) -> bool {
        let Some(asked) = self.pulls.wanted(&whose.targets) else { return true };
        if whose.is_guess && !std::mem::replace(&mut self.is_guessed, true) {
            let who: Vec<String> = whose.targets.iter().map(|target| target.process.pid().to_string()).collect();
            tracing::warn!(
                "who answers at {} cannot be seen: it is taken for one of process {}, and what is read of these from outside is not asked for; CAP_DAC_READ_SEARCH, or the same user, shows who it is",
                self.endpoint.name(),
                who.join(", "),
            );
        }
        let figures = Arc::clone(&self.pulls.handle.pulls);
        figures.from_outside.fetch_add((What::ALL.len() + 1 - asked.len()) as u64, Ordering::Relaxed);
        let process = whose.one().map(|target| target.process);
        let answering = Answering { socket: whose.socket, process, name: name.clone() };
        let is_another = self.last.as_ref().is_none_or(|last| last.is_other(&answering));
        // What one counted is not to be taken from what another did.
        if is_another || whose.is_shared {
            self.begin_anew();
        }
        self.last = Some(answering.or(self.last.take()));
        let resource = match whose.one() {
            Some(target) => target.resource.clone(),
            None => self.resource(name.as_deref()),
        };
        self.begin(whose, &asked);
        let Pulled { mut sets, failed, kept } = self.puller.pull(&asked, &resource).await;
        let now = self.look().await.ok().filter(|now| now.identity() == seen.identity());
        let Some(now) = now else {
            self.begin_anew();
            let why = "another process or socket took its place meanwhile, so whose the answers are cannot be told";
            self.fail(&[Error::new(self.endpoint.name(), why, "nothing, where a program was replaced")]);
            return true;
        };
        self.fail(&failed);
        if asked.is_empty() || !sets.is_empty() {
            self.say(!asked.is_empty());
        }
        self.end(&mut sets);
        // What is read from outside by now is not for the pull to show, either.
        let now = if seen.is_guess { now.of_name(name.as_deref()) } else { now };
        let wanted = self.pulls.wanted(&now.targets).unwrap_or_else(|| asked.clone());
        let is_served = asked.is_empty() || failed.len() < asked.len();
        for (_, set) in sets.into_iter().filter(|(of, set)| wanted.contains(of) && !set.profiles.is_empty()) {
            figures.sets.fetch_add(1, Ordering::Relaxed);
            (self.sink)(set);
        }
        drop(kept);
        is_served
    }

    /// Notes that this is about to be asked, with whoever may answer and is read from outside, too.
    fn begin(&mut self, whose: &Whose, asked: &[Asked]) {
        let kinds: Vec<What> = asked.iter().filter_map(|of| of.kept()).collect();
        let captured = whose.targets.iter().filter(|target| self.pulls.is_captured && is_captured(target));
        let captured: Vec<Process> = captured.map(|target| target.process).collect();
        self.puller.keep(&kinds);
        self.readings.retain(|process, _| captured.contains(process));
        for process in captured {
            let readings = self.readings.entry(process).or_default();
            readings.keep(&kinds);
            self.pulls.handle.outside.pulls(process, readings);
        }
    }

    /// Leaves of the differences in what was answered those that no capture told of, of whoever may have answered.
    fn end(&mut self, sets: &mut [(Asked, ProfileSet)]) {
        let answered: Vec<What> = sets.iter().filter_map(|(of, _)| of.kept()).collect();
        let mut told = answered.clone();
        for (process, readings) in &mut self.readings {
            let free = self.pulls.handle.outside.pulled(*process, readings, &answered);
            told.retain(|what| free.contains(what));
        }
        sets.iter_mut().for_each(|(_, set)| keep_told(set, &told));
    }

    /// Counts what failed, if anything did, and says so once.
    fn fail(&mut self, failed: &[Error]) {
        self.pulls.handle.pulls.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let is_said = std::mem::replace(&mut self.is_said, !failed.is_empty());
        for why in failed.iter().filter(|_| !is_said) {
            tracing::warn!("a profile is not pulled: {why}");
        }
    }

    /// Says whether anything is asked for, where that was not said last.
    fn say(&mut self, is_asked: bool) {
        if self.is_asked.replace(is_asked) == Some(is_asked) {
            return;
        }
        let name = self.endpoint.name();
        match is_asked {
            true => tracing::info!("profiles are pulled from {name}"),
            false => tracing::info!(
                "profiles are not pulled from {name}: all that it serves is read from outside, or sampled"
            ),
        }
    }

    /// Who answers now, where the address is this machine's.
    async fn look(&self) -> Result<Whose, Error> {
        if self.local.is_empty() {
            return Ok(Whose::default());
        }
        let sight = self.pulls.look().await;
        Whose::at(&self.local, &sight.listeners, &sight.targets).map_err(|address| {
            let why = format!("several sockets listen at {address}, so whose an answer is cannot be told");
            Error::new(self.endpoint.name(), why, "let each process serve its profiles at an address of its own")
        })
    }

    /// What is known of who answers, where that is no process in sight.
    fn resource(&self, name: Option<&str>) -> Resource {
        let service = self.endpoint.service.clone().or(name.map(str::to_owned)).unwrap_or_else(|| self.endpoint.name());
        Resource::new().with("service.name", service)
    }

    /// Forgets what was read: another process answers by now, or somebody else told of it.
    fn begin_anew(&mut self) {
        self.puller.begin_anew();
        self.readings.clear();
    }
}

/// Who answers, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answering {
    socket: Option<Socket>,
    process: Option<Process>,
    name: Option<String>,
}

impl Answering {
    /// Whether `now` is another one. Who cannot be told is taken for the same.
    fn is_other(&self, now: &Self) -> bool {
        fn differ<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_some() && other.is_some() && one != other
        }
        self.socket != now.socket || differ(&self.process, &now.process) || differ(&self.name, &now.name)
    }

    /// The same, with what was known of it before.
    fn or(self, before: Option<Self>) -> Self {
        let before = before.filter(|before| !before.is_other(&self));
        let (process, name) = before.map_or((None, None), |before| (before.process, before.name));
        Self { process: self.process.or(process), name: self.name.or(name), ..self }
    }
}

/// Whether the thread that captures reads this one.
pub(super) fn is_captured(target: &Target) -> bool {
    target.profiled.is_ok() && matches!(target.kind, Kind::Go(_))
}

#[cfg(test)]
mod tests;
