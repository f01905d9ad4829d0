//! Who answers at an endpoint of this machine.
//!
//! In: what listens where, and the processes in sight. Out: the socket that is reached, and those who may answer there: one, as a rule; several, where programs
//! handed a socket on; or that this cannot be told. Pure.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::discover::{Kind, Target};
use crate::pull::listening::{Listeners, Reached, Socket};
use crate::target::Process;

/// Who may answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Whose {
    /// Where connections arrive; nothing, where that is no socket of our namespace.
    pub(super) socket: Option<Socket>,
    /// Those in sight who take them.
    pub(super) targets: Vec<Arc<Target>>,
    /// Whether that is a guess: their descriptors cannot be seen, and they are of the socket's user.
    pub(super) is_guess: bool,
    /// Whether what the program calls itself says that it is the one who is left.
    is_told: bool,
}

/// A socket, and those who answer there.
pub(super) type Identity = (Option<Socket>, Vec<Process>);

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
        let suspects: Vec<Process> = listeners.suspects(socket).collect();
        let is_guess = !suspects.is_empty();
        let owners: Vec<Process> = listeners.owners(socket).chain(suspects).collect();
        let owners = targets.iter().filter(|target| owners.contains(&target.process)).cloned();
        let (go, others): (Vec<_>, Vec<_>) = owners.partition(|target| matches!(target.kind, Kind::Go(_)));
        let targets = if go.len() == 1 && !is_guess { go } else { [go, others].concat() };
        Self { socket: Some(socket), targets, is_guess, is_told: false }
    }

    /// The same, of the one alone who may be called so, where that is one: whose program has this name; anybody, where there is no name.
    pub(super) fn of_name(&self, name: Option<&str>) -> Self {
        let may_be = |target: &&Arc<Target>| name.is_none_or(|name| target.exe.name() == name);
        let mut named = self.targets.iter().filter(may_be);
        match (named.next(), named.next()) {
            (Some(one), None) => Self { targets: vec![Arc::clone(one)], is_told: true, ..self.clone() },
            _ => self.clone(),
        }
    }

    /// The one who answers, where it is one: who is a guess is none until his program's name was asked for.
    pub(super) fn one(&self) -> Option<&Arc<Target>> {
        match &self.targets[..] {
            [target] if self.is_told || !self.is_guess => Some(target),
            _ => None,
        }
    }

    /// Which processes, and which socket: told apart by these. Where the processes are a guess, by the socket alone: whoever of its user comes and goes has nothing to do with it.
    pub(super) fn identity(&self) -> Identity {
        let mut processes: Vec<Process> = self.processes().collect();
        processes.sort_unstable();
        (self.socket, if self.is_guess { Vec::new() } else { processes })
    }

    /// The processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        self.targets.iter().map(|target| target.process)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            Ok((whose.identity().1.iter().map(Process::pid).collect::<Vec<_>>(), whose.one().is_some()))
        };
        assert_eq!(whose(&[at(1)]), Ok((vec![2], true)));
        assert_eq!(whose(&[at(2), at(1)]), Ok((vec![1, 2, 3], false)));
        assert_eq!(whose(&[at(5), at(1)]), Ok((vec![2], true)));
        assert_eq!(whose(&[at(3), at(1)]), Ok((vec![], false)));
        assert_eq!(whose(&[at(4)]), Err(at(4)));
    }

    /// Check that where descriptors cannot be seen, those of the socket's user may answer, whatever they are; those of other users do not; and that a name tells who it is, unless
    /// several have it.
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
        let whose = |unseen: &[(u32, u32)]| {
            let listeners = machine_unseen(&[("0100007F", 90)], unseen);
            let whose = Whose::at(&[([127, 0, 0, 1], 6060).into()], &listeners, &all).unwrap();
            let pids = |whose: &Whose| whose.processes().map(|process| process.pid()).collect::<BTreeSet<_>>();
            assert_eq!(whose.identity().1.len(), if whose.is_guess { 0 } else { whose.targets.len() });
            let named = ["one", "others", "nobody"].map(|name| pids(&whose.of_name(Some(name))));
            assert_eq!(pids(&whose.of_name(None)), pids(&whose));
            (pids(&whose), whose.is_guess, named)
        };
        let set = |pids: &[u32]| pids.iter().copied().collect::<BTreeSet<_>>();
        let of_two = [set(&[1]), set(&[2]), set(&[1, 2])];
        assert_eq!(whose(&[(0, 1), (0, 2), (7, 3)]), (set(&[1, 2]), true, of_two));
        let of_three = [set(&[1]), set(&[1, 2, 3]), set(&[1, 2, 3])];
        assert_eq!(whose(&[(0, 1), (0, 2), (0, 3)]), (set(&[1, 2, 3]), true, of_three));
        assert_eq!(whose(&[(7, 1), (7, 2)]), (set(&[]), false, [set(&[]), set(&[]), set(&[])]));
    }
}
