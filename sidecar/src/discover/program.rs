//! What a program is, by its file: for which processor, whether Go and of which version, its build id. Once for all its processes.
//!
//! In: an open file and its identity. Out: [`Program`], shared. The one place where discovery looks into files; the file may be anything.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::target::Identity;

/// Most programs that are remembered.
const MOST: usize = 1024;

/// What stands in the file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// What it is, where its stacks cannot be walked here: another processor, another mode, no ELF.
    pub foreign: Option<String>,
    /// The version of Go, as its build info has it (`go1.22.12`).
    pub go: Option<String>,
    /// GNU's build id, in hexadecimal.
    pub build_id: Option<String>,
}

/// The programs that were looked into.
#[derive(Debug, Default)]
pub struct Programs {
    known: HashMap<Identity, (Arc<Program>, u64)>,
    uses: u64,
}

impl Programs {
    /// The program in `file`, which is looked into only if none of this identity is known. Can wait for the file.
    pub fn look_into(&mut self, identity: Identity, file: File) -> Arc<Program> {
        self.uses += 1;
        if let Some((program, used)) = self.known.get_mut(&identity) {
            *used = self.uses;
            return Arc::clone(program);
        }
        let program = Arc::new(Program::examine(file));
        if self.known.len() >= MOST {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(identity, _)| *identity);
            oldest.map(|identity| self.known.remove(&identity));
        }
        self.known.insert(identity, (Arc::clone(&program), self.uses));
        program
    }
}

impl Program {
    /// Looks into a file.
    #[must_use]
    pub fn examine(file: File) -> Self {
        let mut head = [0; 20];
        let foreign = match file.read_exact_at(&mut head, 0) {
            Ok(()) => foreign(&head),
            Err(_) => Some("no ELF file".to_owned()),
        };
        Self { foreign, go: None, build_id: None }
    }
}

/// What a file is that is not for this processor. Source: elf(5), `e_ident`, `e_machine`.
fn foreign(head: &[u8; 20]) -> Option<String> {
    const OURS: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let [b'\x7f', b'E', b'L', b'F', class, order, ..] = *head else { return Some("no ELF file".to_owned()) };
    let machine = u16::from_le_bytes([head[18], head[19]]);
    match (class, order, machine) {
        (2, 1, OURS) => None,
        (1, ..) => Some("a 32-bit program".to_owned()),
        (_, 2, _) => Some("a big-endian program".to_owned()),
        _ => Some(format!("for another processor (ELF machine {machine})")),
    }
}
