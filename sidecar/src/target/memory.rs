//! The memory of a process, read in batches while it runs.
//!
//! In: addresses. Out: bytes, and exactly how many of them: what cannot be read is never taken for zeros. The process is not
//! stopped, so what is read is consistent only as far as its own writes are. Reading is by number: who must know that it was still
//! the same process looks [`Process::is_alive`](super::Process::is_alive) afterwards.
//!
//! A read waits where the page must come from elsewhere: a mapping of a file on a network, a FUSE file, `userfaultfd`. A process can
//! make such memory on purpose; who reads addresses that a process names does it on a thread that can be left behind.
//!
//! Source: process_vm_readv(2); mm/process_vm_access.c: whole pages are transferred in order until one is not there.

use std::io;

use super::fault::Fault;

/// Most pieces of one system call. The kernel's bound is 1,024 (`IOV_MAX`); more than these gain nothing.
const BATCH: usize = 64;
/// Most bytes of one system call, so that each is short.
const CALL_BYTES: usize = 1 << 20;

/// The memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pid: u32,
}

/// One of several ranges to be read.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Where it begins.
    pub address: u64,
    /// Where its bytes go.
    pub buffer: &'a mut [u8],
    /// How many bytes from the beginning of `buffer` on were read.
    pub read: usize,
}

impl<'a> Piece<'a> {
    /// A range that is not read yet.
    pub fn new(address: u64, buffer: &'a mut [u8]) -> Self {
        Self { address, buffer, read: 0 }
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.read == self.buffer.len()
    }
}

impl Memory {
    /// The memory of the process that has this number at the time of each read.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid }
    }

    /// Reads from `address` on; how many bytes there were, which are fewer than asked for where memory ends.
    ///
    /// # Errors
    /// When the process is gone, or does not let us. Memory that is not there is no error: 0 bytes.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut pieces = [Piece::new(address, buffer)];
        self.read_many(&mut pieces)?;
        let [piece] = pieces;
        Ok(piece.read)
    }

    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Fault::Missing`] when not all of it is there.
    pub fn read_exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let length = buffer.len();
        if self.read(address, buffer)? == length {
            return Ok(());
        }
        Err(Fault::Missing { pid: self.pid, what: format!("{length} bytes of memory at {address:#x}") })
    }

    /// The word at `address`.
    ///
    /// # Errors
    /// As [`Self::read_exact`].
    pub fn read_u64(&self, address: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read_exact(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads all `pieces`, each as far as it is there: one that is missing does not keep the others from being read.
    ///
    /// # Errors
    /// As [`Self::read`]; then pieces behind the ones that say so were not tried.
    pub fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces.iter_mut() {
            piece.read = 0;
        }
        let mut first = 0;
        while let Some(rest) = pieces.get_mut(first..).filter(|rest| !rest.is_empty()) {
            first += self.read_some(rest)?;
        }
        Ok(())
    }

    /// One system call for the first of `pieces`; how many of them are done with.
    fn read_some(&self, pieces: &mut [Piece<'_>]) -> Result<usize, Fault> {
        let (mut local, mut remote, mut asked) = (Vec::new(), Vec::new(), 0);
        for piece in pieces.iter_mut().take(BATCH) {
            let Some(buffer) = piece.buffer.get_mut(piece.read..) else { break };
            let length = buffer.len().min(CALL_BYTES - asked);
            if length < buffer.len() && asked > 0 {
                break;
            }
            asked += length;
            let from = piece.address.wrapping_add(piece.read as u64);
            local.push(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length });
            remote.push(libc::iovec { iov_base: from as *mut libc::c_void, iov_len: length });
        }
        let got = if asked == 0 { 0 } else { self.transfer(&local, &remote)? };
        Ok(settle(pieces, &remote, got))
    }

    /// Bytes that were transferred, in the order of `remote`, until the first that is not there.
    fn transfer(&self, local: &[libc::iovec], remote: &[libc::iovec]) -> Result<usize, Fault> {
        let pid = libc::pid_t::try_from(self.pid).map_err(|_| Fault::Gone { pid: self.pid })?;
        // SAFETY: process_vm_readv(2): every element of `local` is a part of a buffer that `pieces` borrows mutably during the call; addresses
        // in `remote` are of the other process, and the kernel checks them.
        let got = unsafe {
            libc::process_vm_readv(
                pid,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        if let Ok(got) = usize::try_from(got) {
            return Ok(got);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The first of them is not there.
            Some(libc::EFAULT) => Ok(0),
            Some(errno) => Err(Fault::from_errno(self.pid, "memory", rustix::io::Errno::from_raw_os_error(errno))),
            None => Err(Fault::Io { pid: self.pid, what: "memory".into(), source: error }),
        }
    }
}

/// Shares `got` bytes out to the pieces that were asked for; how many of these need no further call: those that are whole, and the one
/// at which it ended.
fn settle(pieces: &mut [Piece<'_>], asked: &[libc::iovec], mut got: usize) -> usize {
    let mut done = 0;
    for (piece, asked) in pieces.iter_mut().zip(asked) {
        let part = got.min(asked.iov_len);
        piece.read += part;
        got -= part;
        if part < asked.iov_len {
            return done + 1;
        }
        if !piece.is_whole() {
            return done;
        }
        done += 1;
    }
    done
}
