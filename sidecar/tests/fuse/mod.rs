//! A file system that can be told to give no answers: what a dead NFS server is to those who read, by FUSE of the running kernel.
//!
//! In: the bytes of its files, which are equal: one, and more with a number behind its name. Out: a mounted folder; requests are answered, or kept unanswered, on a thread of its own until it is dropped. Source:
//! include/uapi/linux/fuse.h, version 7.31.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The folder, and the first file in it, by their numbers.
const FOLDER: u64 = 1;
const FILE: u64 = 2;
/// Its name.
const NAME: &str = "file";
/// Bytes before what a request is about.
const HEADER: usize = 40;
/// What close(2) waits for.
pub(crate) const FLUSH: u64 = 25;
/// `ENOENT`, `ENOSYS`.
const MISSING: i32 = 2;
const UNKNOWN: i32 = 38;

/// The file system.
pub(crate) struct Disk {
    place: PathBuf,
    server: Arc<Server>,
}

struct Server {
    device: File,
    content: Vec<u8>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Which requests get no answer, by their kind; none where it answers.
    hangs: Option<fn(u64) -> bool>,
    requests: Vec<Vec<u8>>,
}

impl Disk {
    /// Mounts it at a folder that is there; `None`: that is not permitted here.
    pub(crate) fn mount(place: &Path, content: Vec<u8>) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40755,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        mount("dead", place, "fuse", MountFlags::NODEV | MountFlags::NOSUID, data.as_c_str()).ok()?;
        let server = Arc::new(Server { device, content, held: Mutex::default() });
        let serving = Arc::clone(&server);
        std::thread::spawn(move || serving.serve());
        Some(Self { place: place.to_owned(), server })
    }

    /// The path of its first file; the others are `file1`, `file2` and so on.
    pub(crate) fn file(&self) -> PathBuf {
        self.place.join(NAME)
    }

    /// Gives no answers any more to requests of these kinds, such as [`FLUSH`].
    pub(crate) fn hang(&self, to: fn(u64) -> bool) {
        self.server.held().hangs = Some(to);
    }

    /// Answers all that was asked meanwhile, and what comes.
    pub(crate) fn go_on(&self) {
        let held = std::mem::take(&mut *self.server.held());
        held.requests.iter().for_each(|request| self.server.answer(request));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // By force: who waits for an answer gets an error.
        let _ended = unmount(&self.place, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

impl Server {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut request = vec![0; 1 << 20];
        loop {
            match (&self.device).read(&mut request) {
                Ok(len) => {
                    let mut held = self.held();
                    if held.hangs.is_some_and(|hangs| hangs(opcode(&request))) {
                        held.requests.push(request[..len].to_vec());
                    } else {
                        self.answer(&request[..len]);
                    }
                }
                // Who asked is gone.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted) => {}
                // It is unmounted.
                Err(_) => return,
            }
        }
    }

    fn answer(&self, request: &[u8]) {
        let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        let (opcode, unique, node) = (opcode(request), word(8), word(16));
        let outcome = match opcode {
            // FORGET, INTERRUPT, BATCH_FORGET: no answer is expected.
            2 | 36 | 42 => return,
            1 => node_of(&request[HEADER..]).map(|node| self.entry(node)).ok_or(MISSING),
            // GETATTR: nothing of it may be kept.
            3 => Ok([&[0; 16], &self.attributes(node)[..]].concat()),
            // OPEN, OPENDIR.
            14 | 27 => Ok(vec![0; 16]),
            15 => Ok(self.read(word(HEADER + 8), word(HEADER + 16) as u32)),
            // STATFS.
            17 => Ok(vec![0; 80]),
            // RELEASE, FLUSH, RELEASEDIR, ACCESS.
            18 | FLUSH | 29 | 34 => Ok(Vec::new()),
            26 => Ok(init()),
            _ => Err(UNKNOWN),
        };
        let (error, body) = outcome.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
        let length = 16 + body.len() as u32;
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &unique.to_le_bytes()].concat();
        // Who asked may be gone.
        let _sent = (&self.device).write(&[head, body].concat());
    }

    fn entry(&self, node: u64) -> Vec<u8> {
        let mut entry = vec![0; 40];
        entry[..8].copy_from_slice(&node.to_le_bytes());
        entry.extend(self.attributes(node));
        entry
    }

    /// `fuse_attr`.
    fn attributes(&self, node: u64) -> [u8; 88] {
        let mut attributes = [0; 88];
        let (mode, size) = if node == FOLDER { (0o40_755_u32, 0) } else { (0o100_755, self.content.len() as u64) };
        attributes[..8].copy_from_slice(&node.to_le_bytes());
        attributes[8..16].copy_from_slice(&size.to_le_bytes());
        attributes[60..64].copy_from_slice(&mode.to_le_bytes());
        attributes[64] = 1;
        attributes[80..84].copy_from_slice(&4096_u32.to_le_bytes());
        attributes
    }

    fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        let rest = self.content.get(offset as usize..).unwrap_or_default();
        rest[..rest.len().min(length as usize)].to_vec()
    }
}

/// What a request is for.
fn opcode(request: &[u8]) -> u64 {
    u32::from_le_bytes(request[4..8].try_into().unwrap()).into()
}

/// The number of the file of this name, which ends with a zero.
fn node_of(name: &[u8]) -> Option<u64> {
    match std::str::from_utf8(name).ok()?.strip_suffix('\0')?.strip_prefix(NAME)? {
        "" => Some(FILE),
        number => Some(FILE + number.parse::<u64>().ok()?),
    }
}

/// `fuse_init_out`: version, pages that are read ahead, no flags, requests at once, bytes of a write.
fn init() -> Vec<u8> {
    let mut init = vec![0; 64];
    for (at, number) in [(0, 7_u32), (4, 31), (8, 128 << 10), (16, 0x000c_0010), (20, 128 << 10), (24, 1)] {
        init[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    init
}
