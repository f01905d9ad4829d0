//! Who answers at an endpoint of this machine.
//!
//! In: what listens where, and the processes in sight. Out: the socket that is reached, and those who may answer there: one, as a rule; several, where programs
//! handed a socket on; or that this cannot be told. Pure.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::discover::{Kind, Target};
use crate::pull::listening::{Listeners, Reached, Socket};
use crate::target::Process;

/// Bytes of the name of a thread. Source: include/linux/sched.h, `TASK_COMM_LEN`, of which the last is zero.
const COMM: usize = 15;

/// Who may answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Whose {
    /// Where connections arrive; nothing, where that is no socket of our namespace.
    pub(super) socket: Option<Socket>,
    /// Those in sight who take them.
    pub(super) targets: Vec<Arc<Target>>,
    /// Whether that is a guess: their descriptors cannot be seen.
    pub(super) is_guess: bool,
    /// Where it is one, those who are of the user who opened the socket.
    of_user: Vec<Process>,
    /// Whether what the program calls itself says that it is the one who is left.
    is_told: bool,
    /// Whether several may answer in turn.
    pub(super) is_shared: bool,
}

/// A socket, and those who answer there; none, where that is a guess.
pub(super) type Identity = (Option<Socket>, Option<Vec<Process>>);

impl Whose {
    /// Who answers at the first of these addresses at which anything listens.
    ///
    /// # Errors
    /// The address, where several sockets listen at it: each answer may be another process's.
    pub(super) fn at(
        addresses: &[SocketAddr],
        listeners: &Listeners,
        targets: &[Arc<Target>],
    ) -> Result<Self, SocketAddr> {
        for address in addresses {
            match listeners.reached(*address) {
                Reached::Nobody => {}
                Reached::One(socket) => return Ok(Self::of(socket, listeners, targets)),
                Reached::Several => return Err(*address),
            }
        }
        Ok(Self::default())
    }

    /// Who answers at this socket; where nobody is seen to have it, who may. Of several who have it, a Go program does that is the only one: what started it has the socket,
    /// too, and what it starts. Of several who may, each does.
    pub(super) fn of(socket: Socket, listeners: &Listeners, targets: &[Arc<Target>]) -> Self {
        let suspects: Vec<(Process, bool)> = listeners.suspects(socket).collect();
        let is_guess = !suspects.is_empty();
        let of_user = suspects.iter().filter(|(_, is_of_user)| *is_of_user).map(|(process, _)| *process).collect();
        let owners: Vec<Process> =
            listeners.owners(socket).chain(suspects.into_iter().map(|(process, _)| process)).collect();
        let owners = targets.iter().filter(|target| owners.contains(&target.process)).cloned();
        let (go, others): (Vec<_>, Vec<_>) = owners.partition(|target| matches!(target.kind, Kind::Go(_)));
        let targets = if go.len() == 1 && !is_guess { go } else { [go, others].concat() };
        let is_shared = targets.len() > 1 && !is_guess;
        Self { socket: Some(socket), targets, is_guess, of_user, is_told: false, is_shared }
    }

    /// Of a guess the same, of those alone who are called so: whose program has this name, or whose main thread has as much of it as there is room for
    /// (proc_pid_comm(5)), for the program may not be ours to see. Of several, those of the user who opened the socket, if there are any; where nobody is called so, anybody may be
    /// the one.
    pub(super) fn of_name(&self, name: Option<&str>) -> Self {
        let is_comm = |target: &Target, name: &str| {
            let most = name.len().min(COMM);
            target.comm.as_bytes() == name.as_bytes().get(..most).unwrap_or_default()
        };
        let is_called =
            |target: &&Arc<Target>| name.is_some_and(|name| target.exe.name() == name || is_comm(target, name));
        let called: Vec<_> = self.targets.iter().filter(is_called).cloned().collect();
        let is_of_user = |target: &&Arc<Target>| self.of_user.contains(&target.process);
        let of_user: Vec<_> = called.iter().filter(is_of_user).cloned().collect();
        let is_known = name.is_none() || !called.is_empty();
        let targets = [of_user, called].into_iter().find(|those| !those.is_empty());
        let targets = targets.unwrap_or_else(|| self.targets.clone());
        // Those of one program may have one socket, and answer in turn.
        let names: HashSet<String> = targets.iter().map(|target| target.exe.name()).collect();
        let is_shared = targets.len() > 1 && is_known && (name.is_some() || names.len() < targets.len());
        let is_told = targets.len() == 1 && is_known;
        Self { targets, is_told, is_shared, ..self.clone() }
    }

    /// The one who answers, where it is one: who is a guess is none until his program's name was asked for.
    pub(super) fn one(&self) -> Option<&Arc<Target>> {
        match &self.targets[..] {
            [target] if self.is_told || !self.is_guess => Some(target),
            _ => None,
        }
    }

    /// Which processes, and which socket: told apart by these. Where the processes are a guess, by the socket alone: whoever comes and goes has nothing to do with it.
    pub(super) fn identity(&self) -> Identity {
        let mut processes: Vec<Process> = self.processes().collect();
        processes.sort_unstable();
        (self.socket, (!self.is_guess).then_some(processes))
    }

    /// The processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        self.targets.iter().map(|target| target.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull::listening::tests::{machine, machine_unseen};

    /// Check that a socket that was handed on is the Go program's, where that is the only one, and else nobody's alone; that the first address at which anything listens
    /// says who it is, even if it is nobody in sight; and that of several sockets at one address none does.
    #[test]
    fn who_answers_is_told_only_where_it_is_known() {
        let kinds = [Kind::Native, Kind::Go("go1.24.0".into()), Kind::Go("go1.24.0".into())];
        let all: Vec<_> =
            (1..).zip(kinds).map(|(pid, kind)| Arc::new(Target::bare(Process::new(pid, 1), kind))).collect();
        let at = |last| ([127, 0, 0, last], 6060).into();
        let sockets = [("0100007F", 20), ("0200007F", 30), ("0300007F", 90), ("0400007F", 10), ("0400007F", 21)];
        let listeners = machine(&sockets, &[(20, 1), (30, 2), (30, 1)]);
        let whose = |addresses: &[SocketAddr]| {
            let whose = Whose::at(addresses, &listeners, &all)?;
            Ok((whose.identity().1.iter().flatten().map(Process::pid).collect::<Vec<_>>(), whose.one().is_some()))
        };
        assert_eq!(whose(&[at(1)]), Ok((vec![2], true)));
        assert_eq!(whose(&[at(2), at(1)]), Ok((vec![1, 2, 3], false)));
        assert_eq!(whose(&[at(5), at(1)]), Ok((vec![2], true)));
        assert_eq!(whose(&[at(3), at(1)]), Ok((vec![], false)));
        assert_eq!(whose(&[at(4)]), Err(at(4)));
    }

    /// Check that where descriptors cannot be seen anybody may answer, whatever they are, and that a name tells who it is, unless several have it, who may answer in turn.
    #[test]
    fn who_may_answer_is_told_by_the_user_of_the_socket() {
        let kinds = [Kind::Native, Kind::Go("go1.24.0".into()), Kind::Go("go1.24.0".into())];
        let all: Vec<_> = (1..)
            .zip(kinds.into_iter().zip(["one", "others", "others"]))
            .map(|(pid, (kind, name))| {
                let mut target = Target::bare(Process::new(pid, 1), kind);
                target.exe.path = format!("/bin/{name}").into();
                Arc::new(target)
            })
            .collect();
        let mut unseen = Target::bare(Process::new(4, 1), Kind::Native);
        unseen.comm = "a-long-name-for".into();
        let company =
            Whose { targets: vec![Arc::new(unseen), Arc::clone(&all[0])], is_guess: true, ..Whose::default() };
        let told = ["a-long-name-for-a-program", "a-long-name-fo", "one"]
            .map(|name| company.of_name(Some(name)).one().map(|target| target.process.pid()));
        assert_eq!((told, company.one().is_some()), ([Some(4), None, Some(1)], false));
        let whose = |unseen: &[(u32, u32)]| {
            let listeners = machine_unseen(&[("0100007F", 90)], unseen);
            let whose = Whose::at(&[([127, 0, 0, 1], 6060).into()], &listeners, &all).unwrap();
            let pids = |whose: &Whose| whose.processes().map(|process| process.pid()).collect::<Vec<_>>();
            assert_eq!(whose.identity().1, None);
            let named = [Some("one"), Some("others"), Some("nobody"), None].map(|name| pids(&whose.of_name(name)));
            (pids(&whose), named)
        };
        // Go programs are first. Of two of one name that of the socket's user is the one; anybody may be, where nobody has the name.
        let all_of_them = vec![2, 3, 1];
        assert_eq!(
            whose(&[(0, 1), (0, 2), (7, 3)]),
            (all_of_them.clone(), [vec![1], vec![2], all_of_them.clone(), all_of_them.clone()])
        );
        assert_eq!(
            whose(&[(0, 1), (0, 2), (0, 3)]),
            (all_of_them.clone(), [vec![1], vec![2, 3], all_of_them.clone(), all_of_them])
        );
        // Whoever opened the socket handed it on.
        assert_eq!(whose(&[(7, 1), (7, 2)]), (vec![2, 1], [vec![1], vec![2], vec![2, 1], vec![2, 1]]));
        let shared = |names: &[Option<&str>], unseen: &[(u32, u32)]| {
            let listeners = machine_unseen(&[("0100007F", 90)], unseen);
            let whose = Whose::at(&[([127, 0, 0, 1], 6060).into()], &listeners, &all).unwrap();
            names
                .iter()
                .map(|name| whose.of_name(*name))
                .map(|of| (of.is_shared, of.one().is_some()))
                .collect::<Vec<_>>()
        };
        let names = [Some("one"), Some("others"), Some("nobody"), None];
        let (told, open, in_turn) = ((false, true), (false, false), (true, false));
        assert_eq!(shared(&names, &[(0, 1), (0, 2), (0, 3)]), [told, in_turn, open, in_turn]);
        assert_eq!(shared(&names, &[(0, 1), (0, 2)]), [told, told, open, open]);
        assert_eq!(shared(&names, &[(7, 1)]), [told, open, open, told]);
    }
}
