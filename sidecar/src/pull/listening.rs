//! Who listens at which address of our network namespace.
//!
//! In: processes. Out: the sockets on which each takes connections, how these can be reached, and whose socket a connection to an address would reach: told
//! by the socket itself (its inode), for two processes may have one port at different addresses, or at the same. Where descriptors are not ours to see, who may have it is told by its
//! network namespace and its user. Bounded: so many descriptors of each process. Reads `/proc` alone, which does not wait for anybody.
//!
//! Sources: proc_net_tcp (Documentation/networking/proc_net_tcp.rst), proc_pid_fd(5); which socket a connection reaches: net/ipv4/inet_hashtables.c
//! (`__inet_lookup_listener`), ipv6(7), `IPV6_V6ONLY`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::target::Process;

/// Most descriptors of a process that are looked at.
const DESCRIPTORS: usize = 16_384;
/// `TCP_LISTEN`. Source: include/net/tcp_states.h.
const LISTEN: &str = "0A";

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket {
    /// Which one it is: no other one has this number as long as it is there.
    pub inode: u64,
    /// Where it listens: at any address of the machine, where it is the unspecified one.
    pub address: SocketAddr,
    /// The user who opened it.
    pub user: u32,
}

/// Where a connection to an address arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// At none of these sockets.
    Nobody,
    /// At this one; or at another one at the same address, if one process has them all.
    One(Socket),
    /// At one of several of different processes that listen at the same address (`SO_REUSEPORT`): at which, the kernel says anew for each connection.
    Several,
}

/// The sockets that listen in our namespace, and which of some processes have which.
#[derive(Debug, Default)]
pub struct Listeners {
    sockets: Vec<Socket>,
    owners: Vec<(Socket, Process)>,
    /// Processes of our namespace whose descriptors are not ours to see, with their users.
    unseen: Vec<(u32, Process)>,
}

impl Listeners {
    /// As of now, of these processes.
    #[must_use]
    pub fn of(processes: &[Process]) -> Self {
        let sockets = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].into_iter().flat_map(all_of).collect();
        let own = network(Path::new("/proc/self"));
        let unseen = processes.iter().filter_map(|process| Some((unseen(*process, own)?, *process))).collect();
        Self::new(sockets, processes.iter().flat_map(|process| open(*process)), unseen)
    }

    fn new(sockets: Vec<Socket>, open: impl Iterator<Item = (u64, Process)>, unseen: Vec<(u32, Process)>) -> Self {
        let known: HashMap<u64, Socket> = sockets.iter().map(|socket| (socket.inode, *socket)).collect();
        let owner = |(inode, process)| Some((*known.get(&inode)?, process));
        let mut owners: Vec<(Socket, Process)> = open.filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        Self { sockets, owners, unseen }
    }

    /// Each socket that one of the processes has, with the addresses at which it, and no other one, can be reached, the likeliest first.
    pub fn found(&self) -> impl Iterator<Item = (Socket, Vec<SocketAddr>)> {
        self.owners.chunk_by(|(one, _), (other, _)| one == other).map(|of| (of[0].0, self.ways(of[0].0)))
    }

    /// The processes that have a socket: several, where one handed it to another.
    pub fn owners(&self, socket: Socket) -> impl Iterator<Item = Process> {
        self.owners.iter().filter(move |(of, _)| *of == socket).map(|(_, process)| *process)
    }

    /// The processes that may have a socket that none is seen to have: those whose descriptors are not ours to see; and whether they are of the user who opened it, who
    /// may have handed it on.
    pub fn suspects(&self, socket: Socket) -> impl Iterator<Item = (Process, bool)> {
        let is_seen = self.owners(socket).next().is_some();
        self.unseen.iter().filter(move |_| !is_seen).map(move |(user, process)| (*process, *user == socket.user))
    }

    /// Where a connection to this address of ours arrives: at what listens there, else at what listens at any address.
    #[must_use]
    pub fn reached(&self, address: SocketAddr) -> Reached {
        let at = |ip: IpAddr| {
            let wanted = SocketAddr::new(ip, address.port());
            let there: Vec<Socket> = self.sockets.iter().filter(|socket| socket.address == wanted).copied().collect();
            match there[..] {
                [] => Reached::Nobody,
                [socket] => Reached::One(socket),
                // All of one process: whichever takes it, it is that one's.
                [socket, ..] if self.are_of_one(&there) => Reached::One(socket),
                _ => Reached::Several,
            }
        };
        let (ip, any) = (address.ip().to_canonical(), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        // Whether one at any address of IPv6 takes connections over IPv4, too, cannot be seen: most do.
        let tried = if ip.is_ipv4() { [ip, Ipv4Addr::UNSPECIFIED.into(), any] } else { [ip, any, any] };
        tried.into_iter().map(at).find(|reached| *reached != Reached::Nobody).unwrap_or(Reached::Nobody)
    }

    /// Whether one process has all of these sockets, and no other one has any.
    fn are_of_one(&self, sockets: &[Socket]) -> bool {
        let owners = |socket: &Socket| self.owners(*socket).collect::<Vec<_>>();
        let first = sockets.first().map(owners).unwrap_or_default();
        first.len() == 1 && sockets.iter().all(|socket| owners(socket) == first)
    }

    fn ways(&self, socket: Socket) -> Vec<SocketAddr> {
        let (four, six) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        let ips = match socket.address.ip() {
            ip if !ip.is_unspecified() => vec![ip],
            IpAddr::V4(_) => vec![four],
            // The loopback may have no IPv6.
            IpAddr::V6(_) => vec![six, four],
        };
        let ways = ips.into_iter().map(|ip| SocketAddr::new(ip, socket.address.port()));
        ways.filter(|way| self.reached(*way) == Reached::One(socket)).collect()
    }
}

/// The sockets of a table that listen. They stand before all others, of which there may be a hundred thousand: these are not read.
fn all_of(path: &str) -> Vec<Socket> {
    let lines = File::open(path).map(|table| BufReader::new(table).lines());
    let lines =
        lines.inspect_err(|error| tracing::debug!(path, %error, "who listens cannot be told")).into_iter().flatten();
    // The first one says what stands where.
    lines.skip(1).map_while(|line| listening(&line.ok()?)).collect()
}

/// The socket of a line of `/proc/net/tcp` that listens.
fn listening(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let address = SocketAddr::new(ip(address)?.to_canonical(), u16::from_str_radix(port, 16).ok()?);
    let (user, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
    (*fields.get(3)? == LISTEN).then_some(Socket { inode, address, user })
}

/// Words of 32 bits in the order of this machine, little-endian.
fn ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_le_bytes());
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (number, part) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *part = word(8 * number)?;
            }
            Some(IpAddr::from(bytes))
        }
        _ => None,
    }
}

/// Which network namespace a process is in, by its folder: its table of sockets is a file of that namespace's own, of which anybody may know which one it is
/// (fs/proc/proc_net.c, `get_proc_task_net`; fs/proc/generic.c, `proc_alloc_inum`).
fn network(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder.join("net/tcp")).ok().map(|table| table.ino())
}

/// The user of a process of the network namespace `own` whose descriptors are not ours to see: not which there are, or not what they are.
fn unseen(process: Process, own: Option<u64>) -> Option<u32> {
    let folder = PathBuf::from(format!("/proc/{}", process.pid()));
    let first = std::fs::read_dir(folder.join("fd")).map(|mut all| all.next());
    let seen = first.and_then(|first| first.map_or(Ok(()), |first| std::fs::read_link(first?.path()).map(drop)));
    let is_refused = seen.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if !is_refused || network(&folder) != own {
        return None;
    }
    let user = std::fs::metadata(folder).ok()?.uid();
    process.is_alive().then_some(user)
}

/// Inodes of the sockets that a process has open; none, where it is another one that has its number by now.
fn open(process: Process) -> Vec<(u64, Process)> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).into_iter().flatten().take(DESCRIPTORS);
    let inode = |entry: std::io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    let open: Vec<(u64, Process)> = entries.filter_map(|entry| Some((inode(entry)?, process))).collect();
    if open.is_empty() || process.is_alive() { open } else { Vec::new() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_that_listen_are_found_by_their_process() {
        let (v4, any) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("0.0.0.0:0").unwrap());
        let own = Process::find(std::process::id()).unwrap();
        // Of another process that had the number, nothing is shown.
        let before = Process::new(own.pid(), own.start_time() - 1);
        let listeners = Listeners::of(&[own, before, Process::new(u32::MAX, 1)]);
        for listener in [&v4, &any] {
            let address = listener.local_addr().unwrap();
            let way = SocketAddr::from(([127, 0, 0, 1], address.port()));
            let (socket, ways) = listeners.found().find(|(socket, _)| socket.address == address).unwrap();
            assert_eq!((ways, listeners.reached(way)), (vec![way], Reached::One(socket)));
            assert_eq!(listeners.owners(socket).collect::<Vec<_>>(), [own]);
        }
    }

    /// The tables of a machine with these sockets, each of the process whose number is a tenth of its inode, and of those that it was handed to.
    pub(crate) fn machine(sockets: &[(&str, u64)], handed: &[(u64, u32)]) -> Listeners {
        let line = |(address, inode): &(&str, u64)| format!("0: {address}:17AC 0:0 0A 0:0 00:0 0 0 0 {inode}\n");
        let own = sockets.iter().map(|(_, inode)| (*inode, *inode as u32 / 10));
        let open = own.chain(handed.iter().copied()).map(|(inode, pid)| (inode, Process::new(pid, 1)));
        Listeners::new(sockets.iter().filter_map(|socket| listening(&line(socket))).collect(), open, Vec::new())
    }

    /// The same with processes of users whose descriptors are not seen; all sockets are root's.
    pub(crate) fn machine_unseen(sockets: &[(&str, u64)], unseen: &[(u32, u32)]) -> Listeners {
        let unseen = unseen.iter().map(|(user, pid)| (*user, Process::new(*pid, 1))).collect();
        Listeners { unseen, owners: Vec::new(), ..machine(sockets, &[]) }
    }

    /// Of each process of such a machine, how it is reached.
    fn ways(listeners: &Listeners) -> Vec<(u32, Vec<SocketAddr>)> {
        let of = |(socket, ways): (Socket, Vec<SocketAddr>)| (socket.inode as u32 / 10, ways);
        listeners.found().map(of).collect()
    }

    const ANY_6: &str = "00000000000000000000000000000000";

    /// Check that of two processes at one port each is known by its address.
    #[test]
    fn one_port_may_be_of_several_processes() {
        // 127.0.0.1, 10.1.2.3, any address.
        let listeners = machine(&[("0100007F", 10), ("0302010A", 20), ("00000000", 30)], &[]);
        let owner = |ip: [u8; 4], port| match listeners.reached((ip, port).into()) {
            Reached::One(socket) => listeners.owners(socket).map(|process| process.pid()).collect(),
            _ => Vec::new(),
        };
        let addresses = [[127, 0, 0, 1], [10, 1, 2, 3], [10, 9, 9, 9]];
        assert_eq!(addresses.map(|ip| owner(ip, 6060)), [[1], [2], [3]]);
        assert_eq!(owner([127, 0, 0, 1], 6061), [0; 0]);
        // The third one cannot be reached by the loopback, where the first one is.
        let way = |ip: [u8; 4]| vec![SocketAddr::from((ip, 6060))];
        assert_eq!(ways(&listeners), [(1, way([127, 0, 0, 1])), (2, way([10, 1, 2, 3])), (3, vec![])]);
    }

    /// Check that of sockets that share an address none is taken for the one that answers, while one beside them is known.
    #[test]
    fn an_address_of_several_sockets_is_nobodys() {
        let listeners = machine(&[("0100007F", 10), ("0100007F", 20), ("00000000", 30)], &[]);
        let reached = |ip: [u8; 4]| listeners.reached((ip, 6060).into());
        assert_eq!(reached([127, 0, 0, 1]), Reached::Several);
        assert!(matches!(reached([10, 1, 2, 3]), Reached::One(Socket { inode: 30, .. })));
        assert_eq!(ways(&listeners), [(1, vec![]), (2, vec![]), (3, vec![])]);
    }

    /// Check that sockets at one address that one process alone has are asked once; not where another one has one of them, or where it is not known who has one.
    #[test]
    fn sockets_of_one_process_at_one_address_are_one() {
        let (sockets, way) = ([("0100007F", 10), ("0100007F", 11)], vec![SocketAddr::from(([127, 0, 0, 1], 6060))]);
        assert_eq!(ways(&machine(&sockets, &[])), [(1, way), (1, vec![])]);
        assert_eq!(ways(&machine(&sockets, &[(11, 2)])), [(1, vec![]), (1, vec![])]);
        let owner = |inode| (inode == 10).then_some((10, Process::new(1, 1)));
        let sockets = machine(&sockets, &[]).sockets;
        let unknown =
            Listeners::new(sockets.clone(), sockets.iter().filter_map(|socket| owner(socket.inode)), Vec::new());
        assert_eq!(ways(&unknown), [(1, vec![])]);
    }

    /// Check that a socket at any address of IPv6 is reached over either, and over IPv4 where no other one is there.
    #[test]
    fn any_address_of_ipv6_is_any_of_ipv4_too() {
        let (four, six) = ("127.0.0.1:6060".parse().unwrap(), "[::1]:6060".parse().unwrap());
        assert_eq!(ways(&machine(&[(ANY_6, 10)], &[])), [(1, vec![six, four])]);
        assert_eq!(ways(&machine(&[(ANY_6, 10), ("00000000", 20)], &[])), [(1, vec![six]), (2, vec![four])]);
        // One of IPv4 that is written as one of IPv6.
        assert_eq!(ways(&machine(&[("0000000000000000FFFF00000100007F", 10)], &[])), [(1, vec![four])]);
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line = "   0: 0100007F:17AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        let told = |line| listening(line).map(|socket| (socket.inode, socket.address));
        assert_eq!(told(line), Some((4711, "127.0.0.1:6060".parse().unwrap())));
        let six = "   0: 00000000000000000000000001000000:17AC 0:0 0A 0:0 00:0 0 0 0 4712";
        assert_eq!(told(six), Some((4712, "[::1]:6060".parse().unwrap())));
        for bad in ["", "sl local_address", "0: 0100007F:17AC 0:0 01 0:0 0:0 0 0 0 1", "0: 01:17AC 0 0A 0 0 0 0 0 1"] {
            assert_eq!(told(bad), None);
        }
    }
}
