//! The binaries that are open, shared by the processes that run them; the one that was not asked for longest goes first.
//!
//! In: open files. Out: [`Binary`]s. Bounded in number, each bounded in itself. Belongs to the threads that read ([`super::reader`]): what is
//! found late is there for the next one; nothing is read or closed under the lock. Closing, too, waits for a file system: for one that hangs, and for any other where the file was
//! deleted and nobody else has it open, until its room is given back. It is done by a thread of its own, and nothing is closed on a file system whose thread has not come back.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::allowance::Allowance;
use super::binary::{Binary, Identity};
use crate::elf;
use crate::target::{Aside, Device, Process, Root};

/// Most binaries that are open at once.
const MOST: usize = 24;
/// Most where closing has to wait. Beyond it who opens one more waits as well.
const MOST_WAITING: usize = 48;
/// Most bytes of the symbols of all that are open, but for the one that was asked last: a browser has four megabytes of them.
const MAX_SYMBOLS: usize = 12 << 20;
/// How long a file is waited for to be closed.
const CLOSING: Duration = Duration::from_millis(10);
/// Most bytes of a vDSO: it has two pages or so.
const MAX_VDSO: u64 = 256 << 10;

/// A file, and what it is.
type Open = (Identity, Arc<Binary>);

/// The open binaries; a copy is of the same ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    /// The one that was asked last stands last.
    open: Arc<Mutex<Vec<Open>>>,
    vdso: Arc<OnceLock<Option<Arc<Binary>>>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    symbols: Arc<Allowance>,
    addresses: Allowance,
    closing: Aside,
}

impl Default for Shared {
    fn default() -> Self {
        let (symbols, addresses) = (Arc::new(Allowance::of_symbols()), Allowance::of_addresses());
        Self { symbols, addresses, closing: Aside::new("close", CLOSING) }
    }
}

impl Book {
    /// The binary of an identity, if it is open.
    pub(super) fn find(&self, identity: &Identity) -> Option<Arc<Binary>> {
        let mut open = self.held();
        let place = open.iter().position(|(known, _)| known == identity)?;
        let entry = open.remove(place);
        let binary = Arc::clone(&entry.1);
        open.push(entry);
        Some(binary)
    }

    /// The binary that a file of a process with this root holds, with the symbols that `split` finds elsewhere. Can wait for both.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(
        &self,
        file: File,
        root: Option<Root>,
        split: impl FnOnce(&elf::File) -> Option<elf::File>,
    ) -> std::io::Result<(Identity, Arc<Binary>)> {
        let file_alone = Identity::of(&file)?;
        let in_root = file_alone.in_root(root);
        for identity in [file_alone, in_root] {
            if let Some(known) = self.find(&identity) {
                return Ok((identity, known));
            }
        }
        let binary = Arc::new(Binary::open(file, split, &self.shared.symbols));
        let identity = if binary.is_stripped() { in_root } else { file_alone };
        let mut open = self.held();
        let mut oldest = Vec::new();
        while open.len() >= MOST
            && let Some(closed) = self.take_oldest(&mut open, identity.device())
        {
            oldest.push(closed);
        }
        open.push((identity, Arc::clone(&binary)));
        drop(open);
        self.close(oldest, identity.device());
        Ok((identity, binary))
    }

    /// Closes those that were not asked for longest, as long as symbols take too much memory. The thread reads files of `own`.
    pub(super) fn settle(&self, own: Device) {
        let mut closed = Vec::new();
        let mut open = self.held();
        while open.iter().map(|(_, binary)| binary.symbol_bytes()).sum::<usize>() > MAX_SYMBOLS {
            let Some(last) = open.pop() else { break };
            let oldest = self.take_oldest(&mut open, own);
            open.push(last);
            let Some(oldest) = oldest else { break };
            closed.push(oldest);
        }
        drop(open);
        self.close(closed, own);
    }

    /// Takes out the first of them whose file system is not waited for; where there are far too many, one of the thread's own in any case.
    fn take_oldest(&self, open: &mut Vec<Open>, own: Device) -> Option<Open> {
        let must_wait = open.len() >= MOST_WAITING;
        let can_be_closed = |device| (device == own && must_wait) || !self.shared.closing.is_away(device);
        let place = open.iter().position(|(identity, _)| can_be_closed(identity.device()))?;
        Some(open.remove(place))
    }

    /// Closes files, outside of the lock. Those that no thread takes stay open, but for those of the thread's own file system.
    fn close(&self, closed: Vec<Open>, own: Device) {
        let mut of_each: BTreeMap<Device, Vec<Open>> = BTreeMap::new();
        for file in closed {
            of_each.entry(file.0.device()).or_default().push(file);
        }
        for (device, files) in of_each {
            let files = Arc::new(Mutex::new(files));
            let to_close = Arc::clone(&files);
            let work = move || {
                let files = std::mem::take(&mut *held(&to_close));
                drop(files);
            };
            // Where that takes longer, they are closed when the thread comes back.
            if self.shared.closing.ask(device, work).is_err() {
                let left = std::mem::take(&mut *held(&files));
                if device != own {
                    self.held().splice(0..0, left);
                }
            }
        }
    }

    /// The kernel's library in every process. It is read from ours: one of a target is what the target made of it.
    pub(super) fn vdso(&self) -> Option<Arc<Binary>> {
        self.vdso.get_or_init(|| own_vdso(&self.shared.symbols).map(Arc::new)).clone()
    }

    /// What looking up addresses may take.
    pub(super) fn addresses(&self) -> &Allowance {
        &self.shared.addresses
    }

    /// Has those that are open keep nothing of what was looked up in them.
    pub(super) fn forget(&self) {
        self.held().iter().for_each(|(_, binary)| binary.forget());
    }

    /// Bytes of what [`Self::forget`] lets go, about.
    pub(super) fn kept(&self) -> usize {
        self.held().iter().map(|(_, binary)| binary.kept()).sum()
    }

    /// Threads that close a file and have not come back yet.
    pub(super) fn closing(&self) -> usize {
        self.shared.closing.away()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.held().len()
    }

    fn held(&self) -> MutexGuard<'_, Vec<Open>> {
        held(&self.open)
    }
}

fn held(files: &Mutex<Vec<Open>>) -> MutexGuard<'_, Vec<Open>> {
    // A list is whole between two calls of its methods.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_vdso(symbols: &Arc<Allowance>) -> Option<Binary> {
    let own = Process::find(std::process::id()).ok()?;
    let mappings = own.mappings().ok()?;
    let vdso = mappings.list().iter().find(|mapping| mapping.name.as_os_str() == "[vdso]")?;
    let size = usize::try_from((vdso.end - vdso.start).min(MAX_VDSO)).ok()?;
    let mut bytes = vec![0; size];
    own.memory().read_exact(vdso.start, &mut bytes).ok()?;
    Binary::of_vdso(bytes, symbols)
}
