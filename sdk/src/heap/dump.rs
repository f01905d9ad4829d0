//! jemalloc's own profile: dumped into a file that is only in memory, read, and gone.
//!
//! In: nothing. Out: a [`Dump`], or what refused it. For our own threads: jemalloc holds locks of its own meanwhile, for which threads wait
//! that take a sample.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use profiler_proto::Limits;
use profiler_proto::heap_v2::{self, Dump};

use super::jemalloc;
use crate::error::Error;
use crate::publish::memory_file;

/// Most bytes that are read of a dump.
pub(super) const MOST_BYTES: u64 = 64 << 20;
/// A stack begins so.
const STACK: &[u8] = b"\n@";

/// A dump as it was read.
#[derive(Debug)]
pub(super) struct DumpRead {
    pub(super) dump: Dump,
    /// How long it was.
    pub(super) bytes: u64,
    /// Its end was not read.
    pub(super) is_cut: bool,
}

/// Has jemalloc dump its profile.
pub(super) fn take() -> Result<DumpRead, Error> {
    let file = file()?;
    let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let remedy = "jemalloc opens /proc/thread-self/fd, which must be there; turn heap profiles off with PROFILER_HEAP=0";
    let refused = |why| Error::environment(format!("mallctl prof.dump {path}"), why, remedy);
    let text = CString::new(path.as_str()).map_err(|why| refused(why.into()))?;
    jemalloc::write_text(c"prof.dump", &text).map_err(refused)?;
    read(file, MOST_BYTES).map_err(refused)
}

/// A file that is only in memory.
pub(super) fn file() -> Result<File, Error> {
    let remedy = "this jemalloc has no hooks, and its dumps need such a file: use tikv-jemallocator 0.7 or newer";
    memory_file(c"profiler heap").map(File::from).map_err(|why| Error::environment("memfd_create", why, remedy))
}

/// What is in `file`, of which no more than `most` bytes are read; stacks beyond are not.
fn read(file: File, most: u64) -> io::Result<DumpRead> {
    let bytes = file.metadata()?.len();
    let is_cut = bytes > most;
    let mut text = Vec::new();
    text.try_reserve_exact(bytes.min(most) as usize)?;
    file.take(most).read_to_end(&mut text)?;
    if is_cut {
        let last = text.windows(STACK.len()).rposition(|window| window == STACK);
        text.truncate(last.map_or(0, |last| last + 1));
    }
    let limits = Limits { bytes: MOST_BYTES as usize, ..Limits::default() };
    let dump = heap_v2::decode(&text, &limits).map_err(io::Error::other)?;
    Ok(DumpRead { dump, bytes, is_cut })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use profiler_proto::heap_v2::{Counts, Stack};

    use super::*;

    fn dump(stacks: u64) -> Dump {
        let counts = Counts { live: 1, live_bytes: 100, ..Counts::default() };
        let stacks = (0..stacks).map(|n| Stack { addresses: [0x1000 + n, 0x2000].into(), counts });
        Dump { interval: 512, in_all: counts, stacks: stacks.collect() }
    }

    /// A file in memory with this text.
    fn file_of(text: &str) -> File {
        let mut file = file().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    /// Check that of a dump which is too long so many whole stacks are read as fit, that this is said, and that one of the right length is
    /// read to its end.
    #[test]
    fn what_is_too_long_is_cut() {
        let whole = dump(100);
        let text = whole.to_string();
        let all = read(file_of(&text), text.len() as u64).unwrap();
        assert_eq!((&all.dump, all.bytes, all.is_cut), (&whole, text.len() as u64, false));
        let behind_ten = dump(10).to_string().len() as u64;
        for more in [0, 1, 2] {
            let cut = read(file_of(&text), behind_ten + more).unwrap();
            // Where nothing of the next stack is read, nobody can know that the last one is whole.
            let stacks = if more == 0 { 9 } else { 10 };
            assert_eq!((cut.dump.stacks.len(), cut.bytes, cut.is_cut), (stacks, text.len() as u64, true), "{more}");
            assert_eq!(cut.dump.stacks, whole.stacks[..stacks]);
        }
    }

    /// Check that what is no dump is an error that says so.
    #[test]
    fn what_is_no_dump_is_an_error() {
        for text in ["", "heap profile: 1: 2", "heap_v2/512\n  t*: 1: 2 [3: 4]\n@ 0x1\n"] {
            let error = read(file_of(text), MOST_BYTES).unwrap_err().to_string();
            assert!(error.contains("not valid dump of jemalloc"), "{error}");
        }
    }
}
