//! The binaries that are open, shared by the processes that run them; the one that was not asked for longest goes first.
//!
//! In: open files. Out: [`Binary`]s. Bounded in number, each bounded in itself.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use super::binary::{Binary, Identity};
use crate::target::Process;

/// Most binaries that are open at once.
const MOST: usize = 24;
/// Most bytes of a vDSO: it has two pages or so.
const MAX_VDSO: u64 = 256 << 10;

/// The open binaries.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// The one that was asked last stands last.
    open: Vec<(Identity, Arc<Binary>)>,
    vdso: OnceLock<Option<Arc<Binary>>>,
}

impl Book {
    /// The binary of an identity, if it is open.
    pub(super) fn find(&mut self, identity: &Identity) -> Option<Arc<Binary>> {
        let place = self.open.iter().position(|(known, _)| known == identity)?;
        let entry = self.open.remove(place);
        let binary = Arc::clone(&entry.1);
        self.open.push(entry);
        Some(binary)
    }

    /// The binary that a file holds.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(&mut self, file: File) -> std::io::Result<(Identity, Arc<Binary>)> {
        let identity = Identity::of(&file)?;
        if let Some(known) = self.find(&identity) {
            return Ok((identity, known));
        }
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        let binary = Arc::new(Binary::open(file));
        self.open.push((identity, Arc::clone(&binary)));
        Ok((identity, binary))
    }

    /// The kernel's library in every process. It is read from ours: one of a target is what the target made of it.
    pub(super) fn vdso(&self) -> Option<Arc<Binary>> {
        self.vdso.get_or_init(|| own_vdso().map(Arc::new)).clone()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

fn own_vdso() -> Option<Binary> {
    let own = Process::find(std::process::id()).ok()?;
    let mappings = own.mappings().ok()?;
    let vdso = mappings.list().iter().find(|mapping| mapping.name.as_os_str() == "[vdso]")?;
    let size = usize::try_from((vdso.end - vdso.start).min(MAX_VDSO)).ok()?;
    let mut bytes = vec![0; size];
    own.memory().read_exact(vdso.start, &mut bytes).ok()?;
    Binary::of_bytes(bytes)
}
