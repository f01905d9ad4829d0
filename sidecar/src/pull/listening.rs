//! Who listens at which address of our network namespace.
//!
//! In: process ids. Out: the sockets on which each takes connections, how these can be reached, and whose socket a connection to an address would reach: told
//! by the socket itself (its inode), for two processes may have one port at different addresses. Nothing where descriptors are not ours to see. Bounded: so
//! many descriptors of each process. Reads `/proc` alone, which does not wait for anybody.
//!
//! Sources: proc_net_tcp (Documentation/networking/proc_net_tcp.rst), proc_pid_fd(5); which socket a connection reaches: net/ipv4/inet_hashtables.c
//! (`__inet_lookup_listener`), ipv6(7), `IPV6_V6ONLY`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
}

/// The sockets that listen in our namespace, and which of some processes have which.
#[derive(Debug, Default)]
pub struct Listeners {
    sockets: Vec<Socket>,
    owners: Vec<(u32, Socket)>,
}

impl Listeners {
    /// As of now, of `pids`.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
        let tables = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        Self::new(&tables, pids.iter().flat_map(|pid| inodes(*pid).map(|inode| (*pid, inode))))
    }

    fn new(tables: &[String], open: impl Iterator<Item = (u32, u64)>) -> Self {
        let sockets: Vec<Socket> = tables.iter().flat_map(|table| table.lines()).filter_map(listening).collect();
        let known: HashMap<u64, Socket> = sockets.iter().map(|socket| (socket.inode, *socket)).collect();
        let mut owners: Vec<(u32, Socket)> = open.filter_map(|(pid, inode)| Some((pid, *known.get(&inode)?))).collect();
        owners.sort_unstable();
        owners.dedup();
        Self { sockets, owners }
    }

    /// Each socket with the process that has it, and the addresses at which it, and no other one, can be reached, the likeliest first.
    pub fn found(&self) -> impl Iterator<Item = (u32, Socket, Vec<SocketAddr>)> {
        self.owners.iter().map(|(pid, socket)| (*pid, *socket, self.ways(*socket)))
    }

    /// The process whose socket a connection to this address of ours reaches.
    #[must_use]
    pub fn owner(&self, address: SocketAddr) -> Option<u32> {
        let reached = self.reached(address)?;
        self.owners.iter().find(|(_, socket)| *socket == reached).map(|(pid, _)| *pid)
    }

    /// The socket that a connection to this address of ours reaches: one that listens there, else one at any address.
    #[must_use]
    pub fn reached(&self, address: SocketAddr) -> Option<Socket> {
        let at = |ip: IpAddr| {
            let wanted = SocketAddr::new(ip, address.port());
            self.sockets.iter().find(|socket| socket.address == wanted).copied()
        };
        match address.ip().to_canonical() {
            // Whether one at any address of IPv6 takes connections over IPv4, too, cannot be seen: most do.
            ip @ IpAddr::V4(_) => {
                at(ip).or_else(|| at(Ipv4Addr::UNSPECIFIED.into())).or_else(|| at(Ipv6Addr::UNSPECIFIED.into()))
            }
            ip @ IpAddr::V6(_) => at(ip).or_else(|| at(Ipv6Addr::UNSPECIFIED.into())),
        }
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
        ways.filter(|way| self.reached(*way) == Some(socket)).collect()
    }
}

/// The socket of a line of `/proc/net/tcp` that listens.
fn listening(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let address = SocketAddr::new(ip(address)?.to_canonical(), u16::from_str_radix(port, 16).ok()?);
    let inode = fields.get(9)?.parse().ok()?;
    (*fields.get(3)? == LISTEN).then_some(Socket { inode, address })
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

/// Inodes of the sockets that a process has open.
fn inodes(pid: u32) -> impl Iterator<Item = u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().take(DESCRIPTORS);
    entries.filter_map(|entry| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_that_listen_are_found_by_their_process() {
        let (v4, any) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("0.0.0.0:0").unwrap());
        let listeners = Listeners::of(&[std::process::id(), u32::MAX]);
        for listener in [&v4, &any] {
            let way = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
            let found = listeners.found().find(|(_, socket, _)| socket.address == listener.local_addr().unwrap());
            assert_eq!(found.map(|(pid, _, ways)| (pid, ways)), Some((std::process::id(), vec![way])));
            assert_eq!(listeners.owner(way), Some(std::process::id()));
        }
    }

    /// The tables of a machine with these sockets, each of the process whose number is a tenth of its inode.
    fn machine(sockets: &[(&str, u64)]) -> Listeners {
        let line = |(address, inode): &(&str, u64)| format!("0: {address}:17AC 0:0 0A 0:0 00:0 0 0 0 {inode}\n");
        let open: Vec<(u32, u64)> = sockets.iter().map(|(_, inode)| (*inode as u32 / 10, *inode)).collect();
        Listeners::new(&[sockets.iter().map(line).collect()], open.into_iter())
    }

    const ANY_6: &str = "00000000000000000000000000000000";

    /// Check that of two processes at one port each is known by its address.
    #[test]
    fn one_port_may_be_of_several_processes() {
        // 127.0.0.1, 10.1.2.3, any address.
        let sockets = [("0100007F", 10), ("0302010A", 20), ("00000000", 30)];
        let owner = |listeners: &Listeners, ip: [u8; 4]| listeners.owner((ip, 6060).into());
        let listeners = machine(&sockets);
        let addresses = [[127, 0, 0, 1], [10, 1, 2, 3], [10, 9, 9, 9]];
        assert_eq!(addresses.map(|ip| owner(&listeners, ip)), [Some(1), Some(2), Some(3)]);
        assert_eq!(listeners.owner(([127, 0, 0, 1], 6061).into()), None);
        // The third one cannot be reached by the loopback, where the first one is.
        let ways: Vec<_> = listeners.found().map(|(pid, _, ways)| (pid, ways)).collect();
        let way = |ip: [u8; 4]| vec![SocketAddr::from((ip, 6060))];
        assert_eq!(ways, [(1, way([127, 0, 0, 1])), (2, way([10, 1, 2, 3])), (3, vec![])]);
    }

    /// Check that a socket at any address of IPv6 is reached over either, and over IPv4 where no other one is there.
    #[test]
    fn any_address_of_ipv6_is_any_of_ipv4_too() {
        let ways = |listeners: &Listeners| listeners.found().map(|(pid, _, ways)| (pid, ways)).collect::<Vec<_>>();
        let (four, six) = ("127.0.0.1:6060".parse().unwrap(), "[::1]:6060".parse().unwrap());
        assert_eq!(ways(&machine(&[(ANY_6, 10)])), [(1, vec![six, four])]);
        assert_eq!(ways(&machine(&[(ANY_6, 10), ("00000000", 20)])), [(1, vec![six]), (2, vec![four])]);
        // One of IPv4 that is written as one of IPv6.
        assert_eq!(ways(&machine(&[("0000000000000000FFFF00000100007F", 10)])), [(1, vec![four])]);
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
