//! Programs that serve profiles and are in no settings, found by the sockets on which they listen.
//!
//! In: the processes in sight, and what listens where. Out: one [`Task`] for each Go program that is not read from outside, at the first of its sockets at which profiles are
//! served. Each program is tried by itself, so one that hangs holds up no other one. Tasks of the main thread.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::pulls::{Pulls, Sink, Task, is_captured};
use super::whose::Whose;
use crate::discover::Target;
use crate::pull::listening::{Listeners, Reached, Socket};
use crate::pull::{Endpoint, Puller};
use crate::target::Process;

/// How often others are looked for, at least.
const LOOKED: Duration = Duration::from_secs(10);
/// Most processes that are asked at sockets that were found, or are tried.
const MOST_FOUND: usize = 64;
/// Most sockets of a process that are tried one after the other; the others, once it is its turn again.
const MOST_TRIED: usize = 4;
/// When a socket that did not answer as a program that serves profiles is tried again: it may begin to. Each time twice as long, up to the second one.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// A socket of a process.
pub(super) type Found = (Process, Socket);

impl Pulls {
    /// Looks for programs that are not read from outside and serve profiles; each gets a task.
    pub(super) async fn find(self, sink: Arc<Sink>) {
        let (mut ticks, mut unclear) = (self.ticks(LOOKED.min(self.every)), BTreeSet::new());
        let mut silent = Silent::default();
        loop {
            ticks.tick().await;
            let targets = self.handle.targets_known();
            let wanting: HashSet<Process> =
                targets.iter().filter(|target| self.wants(target)).map(|target| target.process).collect();
            if wanting.is_empty() {
                continue;
            }
            let (sight, named) = (self.look().await, self.endpoints.iter().map(Endpoint::local));
            let places = Places::of(&sight.listeners, &sight.targets, &wanting, named);
            for address in places.unclear.difference(&unclear) {
                tracing::warn!("profiles are not looked for at {address}: several processes or sockets listen there");
            }
            unclear.clone_from(&places.unclear);
            lock(&self.refused).keep(&places.found);
            let in_vain = wanting.iter().copied().filter(|process| self.is_in_vain(*process, &places)).collect();
            for process in silent.still(&wanting, in_vain) {
                let service = targets.iter().find(|target| target.process == process).map(|target| &*target.service);
                tracing::info!(
                    pid = process.pid(),
                    service,
                    "no profiles to pull: they are served at none of the addresses at which it listens"
                );
            }
            for (process, sockets) in places.found {
                self.begin(process, sockets, &sink);
            }
        }
    }

    fn wants(&self, target: &Arc<Target>) -> bool {
        let asked = self.wanted(std::slice::from_ref(target));
        is_captured(target) && asked.is_some_and(|asked| !asked.is_empty())
    }

    /// Whether a process is asked nowhere, and all its sockets were tried, if it has any.
    fn is_in_vain(&self, process: Process, places: &Places) -> bool {
        let is_asked = self.is_named(process) || lock(&self.found).contains(&process);
        let refused = lock(&self.refused);
        let mut sockets = places.found.get(&process).into_iter().flatten();
        !is_asked
            && !places.left_out.contains(&process)
            && sockets.all(|(socket, _)| refused.knows(&(process, *socket)))
    }

    /// Tries those sockets of a process whose time it is, if nobody does; asks at the first at which profiles are served.
    fn begin(&self, process: Process, sockets: Vec<Place>, sink: &Arc<Sink>) {
        let now = Instant::now();
        let is_due = |(socket, _): &Place| lock(&self.refused).is_due(&(process, *socket), now);
        let due: Vec<Place> = sockets.into_iter().filter(is_due).take(MOST_TRIED).collect();
        let mut known = lock(&self.found);
        if due.is_empty() || self.is_named(process) || known.len() >= MOST_FOUND || !known.insert(process) {
            return;
        }
        let (all, sink) = (self.clone(), Arc::clone(sink));
        tokio::spawn(async move {
            for (socket, ways) in due {
                let is_asked = all.ask_at((process, socket), &ways, &sink).await;
                lock(&all.refused).tried((process, socket), is_asked, Instant::now());
                if is_asked {
                    break;
                }
            }
            lock(&all.found).remove(&process);
        });
    }

    /// Asks at one of the ways to a socket, if profiles are served there, as long as it is that process's. Whether anything was asked.
    async fn ask_at(&self, found: Found, ways: &[SocketAddr], sink: &Arc<Sink>) -> bool {
        let Some((endpoint, puller)) = self.way_to(ways).await else { return false };
        let (pid, name, figures) = (found.0.pid(), endpoint.name(), &self.handle.pulls);
        tracing::info!(pid, "profiles are pulled from {name}");
        figures.endpoints.fetch_add(1, Ordering::Relaxed);
        let is_asked = Task::new(self.clone(), endpoint, puller, Arc::clone(sink)).run_found(found).await;
        figures.endpoints.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(
            pid,
            "profiles are not pulled from {name} any more: the socket there is not the one that was found, or the settings name the process"
        );
        is_asked
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
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket, and how it is reached.
type Place = (Socket, Vec<SocketAddr>);

/// Where profiles may be served.
#[derive(Debug, Default)]
struct Places {
    found: HashMap<Process, Vec<Place>>,
    /// Where it cannot be told who answers.
    unclear: BTreeSet<SocketAddr>,
    /// Those who may, and those who are asked at an address that settings name.
    left_out: HashSet<Process>,
}

impl Places {
    /// Of the processes that want it, but for those that are asked at an address that settings name.
    fn of(
        listeners: &Listeners,
        targets: &[Arc<Target>],
        wanting: &HashSet<Process>,
        named: impl Iterator<Item = Vec<SocketAddr>>,
    ) -> Self {
        let named = named.filter_map(|addresses| Whose::at(&addresses, listeners, targets).ok());
        let named: HashSet<Process> = named.flat_map(|whose| whose.processes().collect::<Vec<_>>()).collect();
        let mut places = Self { left_out: named.clone(), ..Self::default() };
        for (socket, ways) in listeners.found() {
            let whose = Whose::of(socket, listeners, targets).identity().1.unwrap_or_default();
            if !whose.iter().any(|process| wanting.contains(process) && !named.contains(process)) {
                continue;
            }
            match whose[..] {
                [process] if !ways.is_empty() => places.found.entry(process).or_default().push((socket, ways)),
                // It is only hidden, by others at the addresses at which it would be asked.
                [_] if listeners.reached(socket.address) != Reached::Several => {}
                _ => {
                    places.unclear.insert(socket.address);
                    places.left_out.extend(whose);
                }
            }
        }
        places
    }
}

/// Processes that were looked for in vain.
#[derive(Debug, Default)]
struct Silent {
    last: HashSet<Process>,
    told: HashSet<Process>,
}

impl Silent {
    /// Those that were at the look before as well, as one that begins may not listen yet: each once, by number.
    fn still(&mut self, wanting: &HashSet<Process>, in_vain: HashSet<Process>) -> Vec<Process> {
        self.told.retain(|process| wanting.contains(process));
        let mut still: Vec<Process> =
            in_vain.intersection(&self.last).copied().filter(|process| self.told.insert(*process)).collect();
        still.sort_unstable_by_key(Process::pid);
        self.last = in_vain;
        still
    }
}

/// Sockets that did not answer as one of a program that serves profiles, with when they are tried again and how long that was.
#[derive(Debug, Default)]
pub(super) struct Refused(HashMap<Found, (Instant, Duration)>);

impl Refused {
    /// Whether it was tried, and is not asked.
    fn knows(&self, found: &Found) -> bool {
        self.0.contains_key(found)
    }

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
    fn keep(&mut self, there: &HashMap<Process, Vec<Place>>) {
        let is_there =
            |(process, of): &Found| there.get(process).is_some_and(|all| all.iter().any(|(socket, _)| socket == of));
        self.0.retain(|found, _| is_there(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Kind;
    use crate::pull::listening::tests::machine;

    /// Check that a program is asked at one of its sockets, and only where it can be told that it answers.
    #[test]
    fn programs_are_found_once_and_where_they_are_known() {
        let target = |pid, kind| Arc::new(Target::bare(Process::new(pid, 1), kind));
        let go = |pid| target(pid, Kind::Go("go1.24.0".into()));
        let targets = [go(1), go(2), go(3), go(4), target(5, Kind::Native)];
        let wanting = targets[..4].iter().map(|target| target.process).collect();
        // 127.0.0.1 to .7; those of 1 share one, as do those of 2 and 3; the socket of 4 came from 5, which has no Go.
        let at = |last: u8| format!("{last:02X}00007F");
        let sockets = [(1, 10), (2, 11), (3, 20), (3, 30), (4, 31), (5, 40)].map(|(last, inode)| (at(last), inode));
        let sockets: Vec<(&str, u64)> = sockets.iter().map(|(at, inode)| (&at[..], *inode)).collect();
        let listeners = machine(&sockets, &[(40, 5), (31, 2)]);
        let found = |named: &[SocketAddr]| {
            let places = Places::of(&listeners, &targets, &wanting, named.iter().map(|one| vec![*one]));
            let inodes = |(process, places): (&Process, &Vec<Place>)| {
                (process.pid(), places.iter().map(|(socket, _)| socket.inode).collect::<Vec<_>>())
            };
            let mut found: Vec<_> = places.found.iter().map(inodes).collect();
            found.sort();
            (found, places.unclear.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>())
        };
        let unclear: Vec<String> = ["127.0.0.3", "127.0.0.4"].map(Into::into).into();
        assert_eq!(found(&[]), (vec![(1, vec![10, 11]), (4, vec![40])], unclear.clone()));
        // Who is named is asked there alone.
        assert_eq!(found(&[([127, 0, 0, 2], 6060).into()]), (vec![(4, vec![40])], unclear));
    }

    /// Check that a process that is looked for in vain is told once, and not at the first look.
    #[test]
    fn who_serves_no_profiles_is_told_once() {
        let [one, other] = [1, 2].map(|pid| Process::new(pid, 1));
        let (mut silent, both) = (Silent::default(), HashSet::from([one, other]));
        let mut still = |in_vain: &[Process]| silent.still(&both, in_vain.iter().copied().collect());
        assert_eq!(still(&[one, other]), []);
        // The other one is asked, or tried for a long time.
        assert_eq!([still(&[one]), still(&[one]), still(&[one, other])], [vec![one], vec![], vec![]]);
        // The one is tried again.
        assert_eq!([still(&[other]), still(&[one, other]), still(&[one, other])], [vec![other], vec![], vec![]]);
        assert_eq!(silent.still(&HashSet::new(), HashSet::new()), []);
        assert!(silent.told.is_empty());
    }

    /// Check that a socket that did not answer is tried again: after a minute, then less and less often, and never once it is gone.
    #[test]
    fn who_does_not_serve_profiles_is_asked_again_later() {
        let found = (Process::new(1, 1), Socket { inode: 1, address: ([127, 0, 0, 1], 1).into(), user: 0 });
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
