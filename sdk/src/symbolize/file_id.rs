//! What names a build that has no build id: a hash of its file.
//!
//! In: a loaded module. Out: its hash, which stays with the module: 8 KiB of each such file are read, once. Runs on the
//! `profiler-io` thread, also where no names are wanted. As for names, only the file that is loaded counts.

use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use sha2::{Digest, Sha256};

use super::bytes::Storage;
use super::locate::begins_alike;
use crate::unwind::modules::Module;

/// Bytes at either end of the file that count.
const END: u64 = 4096;
/// Bytes of the digest that are shown.
const SHOWN: usize = 16;

/// The hash of a module's file, hexadecimal; `None` where the file cannot be read, or is another one by now.
///
/// Source: OpenTelemetry specification, profiles/mappings.md, `process.executable.build_id.htlhash`.
pub(crate) fn file_id(module: &Module) -> Option<&str> {
    if module.file_id.get().is_none() {
        let id = match open(module) {
            Ok(file) if is_loaded(&file, module) => Some(hash(&file).ok()?),
            // A file that is gone, or another one by now, stays so: it is not looked for at each profile.
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        // This thread alone sets it.
        let _unset = module.file_id.set(id);
    }
    module.file_id.get()?.as_deref()
}

fn open(module: &Module) -> io::Result<Rc<Storage>> {
    match &module.path {
        None => Storage::vdso(&module.range),
        // Where /proc is not mounted, the program has a path still.
        Some(path) if module.is_executable() => Storage::open(path).or_else(|_| Storage::open(Path::new(&module.name))),
        Some(path) => Storage::open(path),
    }
}

fn is_loaded(file: &Rc<Storage>, module: &Module) -> bool {
    module.path.is_none() || begins_alike(file.cursor(0, END.min(file.len())), module)
}

/// Of the first and the last 4,096 bytes, which may be the same ones, and the length, big-endian.
pub(super) fn hash(file: &Rc<Storage>) -> io::Result<String> {
    let (len, part) = (file.len(), END.min(file.len()));
    let mut context = Sha256::new();
    for start in [0, len - part] {
        let mut bytes = Vec::new();
        file.cursor(start, part).ok_or(io::ErrorKind::UnexpectedEof)?.read_to_end(&mut bytes)?;
        context.update(&bytes);
    }
    context.update(len.to_be_bytes());
    Ok(context.finalize().iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect())
}
