//! What a program is, by its file: for which processor, whether Go and of which version, its build id. Once for all its processes.
//!
//! In: an open file and its identity. Out: [`Program`], shared. The one place where discovery looks into files; the file may be anything.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::elf::{self, Machine};
use crate::go::{FUNCTIONS, Version, buildinfo};
use crate::target::Identity;

/// Most programs that are remembered.
const MOST: usize = 1024;

/// What stands in the file of a program, as far as it tells programs apart.
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
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    programs: HashMap<Identity, (Arc<Program>, u64)>,
    uses: u64,
}

impl Programs {
    /// The program in `file`, which is looked into only if none of this identity is known. Can wait for the file; others meanwhile do not.
    pub fn look_into(&self, identity: Identity, file: File) -> Arc<Program> {
        if let Some(program) = self.known.lock().unwrap_or_else(PoisonError::into_inner).find(identity) {
            return program;
        }
        let program = Arc::new(Program::examine(file));
        self.known.lock().unwrap_or_else(PoisonError::into_inner).keep(identity, &program);
        program
    }
}

impl Known {
    fn find(&mut self, identity: Identity) -> Option<Arc<Program>> {
        self.uses += 1;
        let (program, used) = self.programs.get_mut(&identity)?;
        *used = self.uses;
        Some(Arc::clone(program))
    }

    fn keep(&mut self, identity: Identity, program: &Arc<Program>) {
        if self.programs.len() >= MOST {
            let oldest = self.programs.iter().min_by_key(|(_, (_, used))| *used).map(|(identity, _)| *identity);
            oldest.map(|identity| self.programs.remove(&identity));
        }
        self.programs.insert(identity, (Arc::clone(program), self.uses));
    }
}

impl Program {
    /// Looks into a file: headers, notes and Go's build info, not its tables.
    #[must_use]
    pub fn examine(file: File) -> Self {
        let elf = match elf::File::open(file) {
            Ok(elf) => elf,
            Err(fault) => {
                return Self { foreign: Some(format!("a file that cannot be used ({fault})")), ..Self::default() };
            }
        };
        let name = match elf.machine() {
            Machine::X86_64 => "x86_64".to_owned(),
            Machine::Aarch64 => "aarch64".to_owned(),
            Machine::Other(number) => format!("other (ELF machine {number})"),
        };
        let foreign = (elf.machine() != OURS).then(|| format!("for {name} processors"));
        Self { foreign, go: go_version(&elf), build_id: elf.build_id().map(|id| hexadecimal(&id)) }
    }
}

const OURS: Machine = if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };

/// The version of Go in its build info; where that was removed, what the section of its functions gives away.
fn go_version(elf: &elf::File) -> Option<String> {
    match buildinfo::version(elf) {
        Ok(Some(version)) => Some(version.text),
        _ => FUNCTIONS.into_iter().find_map(|name| elf.section(name)).map(|_| Version::default().text),
    }
}

/// Source: longer than any linker's, of which the longest is 32 bytes; a note may be of any length.
const LONGEST_ID: usize = 64;

fn hexadecimal(id: &[u8]) -> String {
    id.iter().take(LONGEST_ID).map(|byte| format!("{byte:02x}")).collect()
}
