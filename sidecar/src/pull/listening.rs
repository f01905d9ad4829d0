//! Who listens on which port of our network namespace.
//!
//! In: process ids. Out: for each, the ports on which it takes connections that we could make. Nothing where its descriptors are not ours to see. Bounded:
//! so many descriptors of each. Reads `/proc` alone, which does not wait for anybody.
//!
//! Sources: proc_net_tcp (Documentation/networking/proc_net_tcp.rst), proc_pid_fd(5).

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most descriptors of a process that are looked at.
const DESCRIPTORS: usize = 16_384;
/// `TCP_LISTEN`. Source: include/net/tcp_states.h.
const LISTEN: &str = "0A";

/// Where each of `pids` can be connected to: by the loopback where it listens at any address.
#[must_use]
pub fn listeners(pids: &[u32]) -> Vec<(u32, SocketAddr)> {
    let mut sockets = HashMap::new();
    for path in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let table = std::fs::read_to_string(path).unwrap_or_default();
        sockets.extend(table.lines().filter_map(listening));
    }
    let mut found = Vec::new();
    for pid in pids {
        let own: HashSet<u64> = inodes(*pid).filter(|inode| sockets.contains_key(inode)).collect();
        found.extend(own.iter().filter_map(|inode| Some((*pid, *sockets.get(inode)?))));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Inode and address of a line of `/proc/net/tcp` that is of a socket that listens.
fn listening(line: &str) -> Option<(u64, SocketAddr)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let address = ip(address)?;
    let address = match address {
        _ if !address.is_unspecified() => address,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.get(9)?.parse().ok()?;
    (*fields.get(3)? == LISTEN).then_some((inode, SocketAddr::new(address, port)))
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
        let found = listeners(&[std::process::id(), u32::MAX]);
        let at = |listener: &TcpListener| {
            (std::process::id(), SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port())))
        };
        assert!(found.contains(&at(&v4)) && found.contains(&at(&any)), "{found:?}");
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line = "   0: 0100007F:17AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        assert_eq!(listening(line), Some((4711, "127.0.0.1:6060".parse().unwrap())));
        let six = "   0: 00000000000000000000000001000000:17AC 0:0 0A 0:0 00:0 0 0 0 4712";
        assert_eq!(listening(six), Some((4712, "[::1]:6060".parse().unwrap())));
        for bad in ["", "sl local_address", "0: 0100007F:17AC 0:0 01 0:0 0:0 0 0 0 1", "0: 01:17AC 0 0A 0 0 0 0 0 1"] {
            assert_eq!(listening(bad), None);
        }
    }
}
