//! Programs that serve profiles themselves, asked again and again for what is not read of them from outside.
//!
//! In: the endpoints of the settings, and, when that is asked for, ports on which Go programs in sight listen. Out: sets, the way of all others. Whose port it
//! is, is looked up each time: the set then has that process's resource, and no kind that is read of it from outside, nor CPU where that is sampled. Tasks
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
use crate::pull::{Asked, Endpoint, Puller, Turns, listening};
use crate::target::Process;

/// When endpoints are asked first: by then it is known what is read from outside.
const FIRST: Duration = Duration::from_secs(4);
/// How often others are looked for, at least.
const LOOKED: Duration = Duration::from_secs(10);
/// Longest CPU profile; a shorter interval has shorter ones.
const CPU: Duration = Duration::from_secs(10);
/// Most endpoints that are found by their ports.
const MOST_FOUND: usize = 64;

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
    found: Arc<Mutex<HashSet<(Process, SocketAddr)>>>,
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
        let (mut ticks, mut refused) = (self.ticks(LOOKED.min(self.every)), HashSet::new());
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
            let living: HashSet<Process> = targets.iter().map(|target| target.process).collect();
            refused.retain(|(process, _)| living.contains(process));
            for (pid, address) in listeners(wanting.keys().copied().collect()).await {
                let Some(found) = wanting.get(&pid).map(|process| (*process, address)) else { continue };
                if !refused.contains(&found) && !self.ask_at(found, &sink).await {
                    refused.insert(found);
                }
            }
        }
    }

    /// Begins to ask at an address, if profiles are served there and nobody does yet.
    async fn ask_at(&self, found: (Process, SocketAddr), sink: &Arc<Sink>) -> bool {
        let is_named = self.endpoints.iter().any(|endpoint| endpoint.local_port() == Some(found.1.port()));
        let is_asked = {
            let known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            known.contains(&found) || known.len() >= MOST_FOUND
        };
        if is_named || is_asked {
            return true;
        }
        let Some((endpoint, puller)) = self.way_to(found.1).await else { return false };
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

    /// The first way in which profiles are served at an address.
    async fn way_to(&self, address: SocketAddr) -> Option<(Endpoint, Puller)> {
        for endpoint in self.finding.iter().map(|endpoint| endpoint.at(address)) {
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
            // Who is there was not looked at yet: whose port it is cannot be told.
            if self.pulls.handle.targets_known().is_empty() && self.endpoint.local_port().is_some() {
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

    /// Whose port it is, where it is one of this machine's and its process is in sight.
    async fn owner(&self) -> Option<Arc<Target>> {
        let port = self.endpoint.local_port()?;
        let targets = self.pulls.handle.targets_known();
        let listening = listeners(targets.iter().map(|target| target.process.pid()).collect()).await;
        let (pid, _) = listening.into_iter().find(|(_, address)| address.port() == port)?;
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

async fn listeners(pids: Vec<u32>) -> Vec<(u32, SocketAddr)> {
    if pids.is_empty() {
        return Vec::new();
    }
    tokio::task::spawn_blocking(move || listening::listeners(&pids)).await.unwrap_or_default()
}
