//! Programs that serve profiles themselves, asked again and again for what is not read of them from outside.
//!
//! In: the endpoints of the settings, and, when that is asked for, sockets on which Go programs in sight listen. Out: sets, the way of all others. Whose
//! socket it is, is looked up each time: the set then has that process's resource, and no kind that is read of it from outside, nor CPU where that is sampled. Tasks
//! of the main thread, one for each endpoint; what reads `/proc` or decodes is done on a thread of the runtime's.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::resource::Resource;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::source::Handle;
use crate::capture::What;
use crate::config::{Config, DEFAULT_RUNTIME_INTERVAL};
use crate::discover::{Kind, Target};
use crate::pull::listening::{Listeners, Socket};
use crate::pull::{Asked, Endpoint, Puller, Turns};
use crate::target::Process;

/// When endpoints are asked first: by then it is known what is read from outside.
const FIRST: Duration = Duration::from_secs(4);
/// How often others are looked for, at least.
const LOOKED: Duration = Duration::from_secs(10);
/// Longest CPU profile; a shorter interval has shorter ones.
const CPU: Duration = Duration::from_secs(10);
/// Most endpoints that are found by their sockets.
const MOST_FOUND: usize = 64;
/// When a socket that did not answer as a program that serves profiles is tried again: it may begin to. Each time twice as long, up to the second one.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

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
    handle: Handle,
    endpoints: Vec<Endpoint>,
    /// How those are asked that are found: the first way that they answer.
    finding: Vec<Endpoint>,
    /// Whether runtimes are read from outside at all.
    is_captured: bool,
    every: Duration,
    turns: Arc<Turns>,
    /// Endpoints that were found: each is asked by one task as long as it is there.
    found: Arc<Mutex<HashSet<Found>>>,
}

/// A socket of a process.
type Found = (Process, Socket);

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
        }
    }

    /// Starts a task for each endpoint, and one that finds others.
    pub(super) fn start(&self, sink: &Arc<Sink>) {
        for endpoint in &self.endpoints {
            match Puller::new(endpoint, Arc::clone(&self.turns)) {
                Ok(puller) => {
                    self.handle.pulls.endpoints.fetch_add(1, Ordering::Relaxed);
                    let task = Task::new(self.clone(), endpoint.clone(), puller, Arc::clone(sink));
                    tokio::spawn(task.run(None));
                }
                Err(error) => tracing::error!("profiles are not pulled: {error}"),
            }
        }
        if !self.finding.is_empty() {
            tokio::spawn(self.clone().find(Arc::clone(sink)));
        }
    }

    fn ticks(&self, every: Duration) -> tokio::time::Interval {
        let mut ticks = interval_at(Instant::now() + FIRST.min(every), every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Looks for programs that are not read from outside and serve profiles; each gets a task.
    async fn find(self, sink: Arc<Sink>) {
        let (mut ticks, mut refused) = (self.ticks(LOOKED.min(self.every)), Refused::default());
        loop {
            ticks.tick().await;
            let targets = self.handle.targets_known();
            let wanting = |target: &Arc<Target>| {
                let wants =
                    self.wanted(Some(target)).is_some_and(|asked| asked.iter().any(|of| matches!(of, Asked::Kept(_))));
                wants && is_captured(target)
            };
            let wanting: HashMap<u32, Process> = targets
                .iter()
                .filter(|target| wanting(target))
                .map(|target| (target.process.pid(), target.process))
                .collect();
            let found = self.sockets(&listeners(wanting.keys().copied().collect()).await, &wanting);
            refused.keep(&found);
            for (found, ways) in found {
                if refused.is_due(&found, Instant::now()) {
                    let is_asked = self.ask_at(found, &ways, &sink).await;
                    refused.tried(found, is_asked, Instant::now());
                }
            }
        }
    }

    /// The sockets of these processes, and how each is reached; not those that settings name an address of.
    fn sockets(&self, listeners: &Listeners, of: &HashMap<u32, Process>) -> HashMap<Found, Vec<SocketAddr>> {
        let named = self.endpoints.iter().flat_map(Endpoint::local);
        let named: HashSet<Socket> = named.filter_map(|address| listeners.reached(address)).collect();
        let others = listeners.found().filter(|(_, socket, _)| !named.contains(socket));
        others.filter_map(|(pid, socket, ways)| Some(((*of.get(&pid)?, socket), ways))).collect()
    }

    /// Begins to ask at one of the ways to a socket, if profiles are served there and nobody does yet.
    async fn ask_at(&self, found: Found, ways: &[SocketAddr], sink: &Arc<Sink>) -> bool {
        let is_asked = {
            let known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            known.contains(&found) || known.len() >= MOST_FOUND
        };
        if is_asked {
            return true;
        }
        let Some((endpoint, puller)) = self.way_to(ways).await else { return false };
        tracing::info!(pid = found.0.pid(), "profiles are pulled from {}", endpoint.name());
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(found);
        self.handle.pulls.endpoints.fetch_add(1, Ordering::Relaxed);
        let (task, all) = (Task::new(self.clone(), endpoint, puller, Arc::clone(sink)), self.clone());
        tokio::spawn(async move {
            task.run(Some(found.0)).await;
            all.found.lock().unwrap_or_else(PoisonError::into_inner).remove(&found);
            all.handle.pulls.endpoints.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }

    /// The first way in which profiles are served at one of these addresses.
    async fn way_to(&self, ways: &[SocketAddr]) -> Option<(Endpoint, Puller)> {
        let at = |way: &SocketAddr| self.finding.iter().map(|endpoint| endpoint.at(*way)).collect::<Vec<_>>();
        let endpoints: Vec<Endpoint> = ways.iter().flat_map(at).collect();
        for endpoint in endpoints {
            match Puller::new(&endpoint, Arc::clone(&self.turns)) {
                Ok(puller) if puller.is_there().await => return Some((endpoint, puller)),
                Ok(_) => {}
                Err(error) => tracing::error!("profiles are not pulled: {error}"),
            }
        }
        None
    }

    /// What is not read of a process from outside, so is to be asked for; `None`: that is not known yet.
    fn wanted(&self, target: Option<&Arc<Target>>) -> Option<Vec<Asked>> {
        let read = match target {
            Some(target) if self.is_captured && is_captured(target) => self.handle.is_read_outside(target.process)?,
            _ => Vec::new(),
        };
        let kept = What::ALL.into_iter().filter(|what| !read.contains(what)).map(Asked::Kept);
        let cpu = Asked::Cpu((self.every / 2).min(CPU));
        let is_sampled = target.is_some_and(|target| self.handle.samples(target));
        Some(kept.chain((!is_sampled).then_some(cpu)).collect())
    }
}

/// One endpoint that is asked.
struct Task {
    pulls: Pulls,
    endpoint: Endpoint,
    puller: Puller,
    sink: Arc<Sink>,
    /// Whose it was when it was asked last, and what it was asked for.
    last: Option<(Option<Process>, Vec<Asked>)>,
    /// What the program calls itself.
    name: Option<String>,
    /// What was wrong is said once.
    is_said: bool,
}

impl Task {
    fn new(pulls: Pulls, endpoint: Endpoint, puller: Puller, sink: Arc<Sink>) -> Self {
        Self { pulls, endpoint, puller, sink, last: None, name: None, is_said: false }
    }

    /// Asks as long as the agent runs; of a process that was found, as long as that does.
    async fn run(mut self, of: Option<Process>) {
        let mut ticks = self.pulls.ticks(self.pulls.every);
        loop {
            ticks.tick().await;
            // Who is there was not looked at yet: whose socket it is cannot be told.
            if self.pulls.handle.targets_known().is_empty() && !self.endpoint.local().is_empty() {
                continue;
            }
            let target = self.owner().await;
            if of.is_some_and(|of| target.as_ref().is_none_or(|target| target.process != of)) {
                return;
            }
            self.round(target.as_ref()).await;
        }
    }

    async fn round(&mut self, target: Option<&Arc<Target>>) {
        let Some(asked) = self.pulls.wanted(target) else { return };
        let figures = Arc::clone(&self.pulls.handle.pulls);
        figures.from_outside.fetch_add((What::ALL.len() + 1 - asked.len()) as u64, Ordering::Relaxed);
        let now = Some((target.map(|target| target.process), asked.clone()));
        if self.last != now {
            self.puller.begin_anew();
            self.last = now;
        }
        let resource = match target {
            Some(target) => target.resource.clone(),
            None => self.resource().await,
        };
        let (sets, failed) = self.puller.pull(&asked, &resource).await;
        figures.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let is_said = std::mem::replace(&mut self.is_said, !failed.is_empty());
        for why in failed.iter().filter(|_| !is_said) {
            tracing::warn!("a profile is not pulled: {why}");
        }
        for set in sets.into_iter().filter(|set| !set.profiles.is_empty()) {
            figures.sets.fetch_add(1, Ordering::Relaxed);
            (self.sink)(set);
        }
    }

    /// Whose socket is reached, where the address is this machine's and the process is in sight.
    async fn owner(&self) -> Option<Arc<Target>> {
        let local = self.endpoint.local();
        if local.is_empty() {
            return None;
        }
        let targets = self.pulls.handle.targets_known();
        let listeners = listeners(targets.iter().map(|target| target.process.pid()).collect()).await;
        let pid = local.into_iter().find_map(|address| listeners.owner(address))?;
        targets.into_iter().find(|target| target.process.pid() == pid)
    }

    /// Who it is, where that has to be asked.
    async fn resource(&mut self) -> Resource {
        if self.name.is_none() {
            self.name = match &self.endpoint.service {
                Some(service) => Some(service.clone()),
                None => self.puller.name().await,
            };
        }
        Resource::new().with("service.name", self.name.clone().unwrap_or_else(|| self.endpoint.name()))
    }
}

/// Whether the thread that captures reads this one.
fn is_captured(target: &Target) -> bool {
    target.profiled.is_ok() && matches!(target.kind, Kind::Go(_))
}

async fn listeners(pids: Vec<u32>) -> Listeners {
    if pids.is_empty() {
        return Listeners::default();
    }
    tokio::task::spawn_blocking(move || Listeners::of(&pids)).await.unwrap_or_default()
}

/// Sockets that did not answer as one of a program that serves profiles, with when they are tried again and how long that was.
#[derive(Default)]
struct Refused(HashMap<Found, (Instant, Duration)>);

impl Refused {
    /// Whether it may be tried.
    fn is_due(&self, found: &Found, now: Instant) -> bool {
        self.0.get(found).is_none_or(|(when, _)| now >= *when)
    }

    /// What came of it.
    fn tried(&mut self, found: Found, is_asked: bool, now: Instant) {
        if is_asked {
            self.0.remove(&found);
            return;
        }
        let last = self.0.get(&found).map(|(_, wait)| *wait);
        let wait = last.map_or(AGAIN.0, |wait| (2 * wait).min(AGAIN.1));
        self.0.insert(found, (now + wait, wait));
    }

    /// Forgets those that are not there any more.
    fn keep(&mut self, there: &HashMap<Found, Vec<SocketAddr>>) {
        self.0.retain(|found, _| there.contains_key(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a socket that did not answer is tried again: after a minute, then less and less often, and never once it is gone.
    #[test]
    fn who_does_not_serve_profiles_is_asked_again_later() {
        let found = (Process::new(1, 1), Socket { inode: 1, address: ([127, 0, 0, 1], 1).into() });
        let (mut refused, mut now, mut waits) = (Refused::default(), Instant::now(), Vec::new());
        for _ in 0..9 {
            let began = now;
            while !refused.is_due(&found, now) {
                now += Duration::from_secs(10);
            }
            waits.push((now - began).as_secs());
            refused.tried(found, false, now);
        }
        assert_eq!(waits, [0, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        refused.keep(&HashMap::new());
        assert!(refused.is_due(&found, now) && refused.0.is_empty());
        refused.tried(found, false, now);
        refused.tried(found, true, now);
        assert!(refused.0.is_empty());
    }
}
