//! Offsets of a few fields in the running kernel, from its BTF.
//!
//! In: `/sys/kernel/btf/vmlinux`, 5 MB, read once and let go. Out: numbers. The table of types is not kept: a pass over the bytes for
//! each structure. Source: `Documentation/bpf/btf.rst`, `include/uapi/linux/btf.h`.

use profiler_sidecar_ebpf::{SETTINGS, Setting};

/// Where the kernel shows it.
pub(super) const PATH: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
/// Structures and unions inside of structures, at most so deep.
const DEPTH: u32 = 8;

/// The thread pointer: `struct thread_struct` of each architecture.
#[cfg(target_arch = "x86_64")]
const THREAD_POINTER: &[&str] = &["thread", "fsbase"];
#[cfg(target_arch = "aarch64")]
const THREAD_POINTER: &[&str] = &["thread", "uw", "tp_value"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const THREAD_POINTER: &[&str] = &["thread"];

/// A field, by the way to it.
type Field = (Setting, &'static [&'static str]);

/// What is wanted of each structure.
const WANTED: &[(&str, &[Field])] = &[
    (
        "task_struct",
        &[
            (Setting::TaskFlags, &["flags"]),
            (Setting::TaskThreadPid, &["thread_pid"]),
            (Setting::TaskTgid, &["tgid"]),
            (Setting::TaskSignal, &["signal"]),
            (Setting::ThreadPointer, THREAD_POINTER),
        ],
    ),
    ("signal_struct", &[(Setting::SignalLive, &["live"]), (Setting::SignalPids, &["pids"])]),
    ("pid", &[(Setting::PidLevel, &["level"]), (Setting::PidNumbers, &["numbers"])]),
];

/// What is wanted beside that, for files of programs.
const OF_FILES: &[(&str, &[Field])] = &[
    ("linux_binprm", &[(Setting::BinprmFile, &["file"])]),
    ("file", &[(Setting::FileInode, &["f_inode"])]),
    (
        "inode",
        &[
            (Setting::InodeNumber, &["i_ino"]),
            (Setting::InodeSize, &["i_size"]),
            (Setting::InodeGeneration, &["i_generation"]),
            (Setting::InodeSuperBlock, &["i_sb"]),
        ],
    ),
    ("super_block", &[(Setting::SuperBlockDevice, &["s_dev"])]),
];

/// Seconds and nanoseconds of `inode.i_ctime`: since Linux 6.11, since 6.6, and before.
const CHANGED: [[&[&str]; 2]; 3] = [
    [&["i_ctime_sec"], &["i_ctime_nsec"]],
    [&["__i_ctime", "tv_sec"], &["__i_ctime", "tv_nsec"]],
    [&["i_ctime", "tv_sec"], &["i_ctime", "tv_nsec"]],
];

/// Fills in the offsets; else what was not there. Whether those for files of programs are among them is a setting.
pub(super) fn fill(settings: &mut [u64; SETTINGS], btf: &[u8]) -> Result<(), String> {
    let btf = Btf::parse(btf).ok_or("it is no BTF")?;
    fill_in(settings, &btf, WANTED)?;
    set(settings, Setting::Offsets, 1);
    let has_files = fill_in(settings, &btf, OF_FILES).is_ok() && fill_changed(settings, &btf).is_some();
    set(settings, Setting::Executables, has_files.into());
    Ok(())
}

fn fill_in(settings: &mut [u64; SETTINGS], btf: &Btf<'_>, wanted: &[(&str, &[Field])]) -> Result<(), String> {
    for (of, fields) in wanted {
        let structure = btf.structure(of).ok_or_else(|| format!("it has no {of}"))?;
        for (setting, path) in *fields {
            let bits = btf.offset(structure, path).ok_or_else(|| format!("it has no {of}.{}", path.join(".")))?;
            set(settings, *setting, bits / 8);
        }
    }
    Ok(())
}

fn fill_changed(settings: &mut [u64; SETTINGS], btf: &Btf<'_>) -> Option<()> {
    let inode = btf.structure("inode")?;
    let [seconds, nanos] = CHANGED
        .into_iter()
        .find_map(|[seconds, nanos]| Some([btf.offset(inode, seconds)?, btf.offset(inode, nanos)?]))?;
    set(settings, Setting::InodeChanged, seconds / 8);
    set(settings, Setting::InodeChangedNanos, nanos / 8);
    Some(())
}

fn set(settings: &mut [u64; SETTINGS], which: Setting, value: u64) {
    if let Some(slot) = settings.get_mut(which as usize) {
        *slot = value;
    }
}

/// BTF, and where each type stands.
struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    starts: Vec<u32>,
}

/// A type: `struct btf_type`.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    info: u32,
    /// Size, or another type.
    other: u32,
    /// Where what follows it begins.
    body: usize,
}

impl Type {
    fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    fn length(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Bytes that follow the three words.
    fn tail(self) -> Option<usize> {
        Some(match self.kind() {
            1 | 14 | 17 => 4, // int, var, decl_tag
            ARRAY => 12,      // array
            STRUCT | UNION => 12 * self.length(),
            6 => 8 * self.length(),          // enum
            13 => 8 * self.length(),         // func_proto
            15 | 19 => 12 * self.length(),   // datasec, enum64
            POINTER | 7..=12 | 16 | 18 => 0, // fwd, typedef, volatile, const, restrict, func, float, type_tag
            _ => return None,
        })
    }
}

impl<'a> Btf<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| word(bytes, at).map(|word| word as usize);
        if bytes.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        // struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len.
        let (head, types, types_length, strings, strings_length) =
            (word(4)?, word(8)?, word(12)?, word(16)?, word(20)?);
        let part = |from: usize, length: usize| {
            let start = head.checked_add(from)?;
            bytes.get(start..start.checked_add(length)?)
        };
        let mut btf =
            Self { types: part(types, types_length)?, strings: part(strings, strings_length)?, starts: vec![0] };
        btf.find_starts()?;
        Some(btf)
    }

    /// Types have numbers by their order, from 1; 0 is `void`.
    fn find_starts(&mut self) -> Option<()> {
        let mut at = 0;
        while at < self.types.len() {
            self.starts.push(u32::try_from(at).ok()?);
            let one = self.at(at)?;
            at = one.body.checked_add(one.tail()?)?;
        }
        Some(())
    }

    fn at(&self, at: usize) -> Option<Type> {
        let field = |index: usize| word(self.types, at.checked_add(4 * index)?);
        Some(Type { name: field(0)?, info: field(1)?, other: field(2)?, body: at.checked_add(12)? })
    }

    fn number(&self, number: u32) -> Option<Type> {
        let number = usize::try_from(number).ok()?;
        if number == 0 { None } else { self.at(usize::try_from(*self.starts.get(number)?).ok()?) }
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let text = usize::try_from(name).ok().and_then(|at| self.strings.get(at..));
        text.and_then(|text| text.get(..=wanted.len())).and_then(<[u8]>::split_last) == Some((&0, wanted.as_bytes()))
    }

    /// The structure of this name.
    fn structure(&self, name: &str) -> Option<Type> {
        let all = self.starts.iter().skip(1).filter_map(|start| self.at(usize::try_from(*start).ok()?));
        all.into_iter().find(|one| one.kind() == STRUCT && one.length() > 0 && self.is_named(one.name, name))
    }

    /// Where the field at the end of a way stands, in bits.
    fn offset(&self, of: Type, path: &[&str]) -> Option<u64> {
        let mut bits = 0;
        path.iter().try_fold(of, |of, name| {
            let (at, kind) = self.member(of, name, DEPTH)?;
            bits += u64::from(at);
            Some(kind)
        })?;
        Some(bits)
    }

    /// Where a member stands, in bits, and its type; also one of a nameless structure in it.
    fn member(&self, of: Type, name: &str, depth: u32) -> Option<(u32, Type)> {
        let of = self.plain(of)?;
        if ![STRUCT, UNION].contains(&of.kind()) || depth == 0 {
            return None;
        }
        let wide = of.info >> 31 == 1;
        for index in 0..of.length() {
            let field = |field: usize| word(self.types, of.body + 12 * index + 4 * field);
            let (text, number, offset) = (field(0)?, field(1)?, field(2)?);
            // With `kind_flag`, the upper byte is the size of a bit field.
            let offset = if wide { offset & 0x00ff_ffff } else { offset };
            if self.is_named(text, name) {
                // What a pointer or a number is does not matter: only structures are walked into.
                return Some((offset, self.number(number).unwrap_or(of)));
            }
            if text == 0
                && let Some(inner) = self.number(number)
                && let Some((at, kind)) = self.member(inner, name, depth - 1)
            {
                return Some((offset.checked_add(at)?, kind));
            }
        }
        None
    }

    /// What a name or a qualifier stands for.
    fn plain(&self, mut of: Type) -> Option<Type> {
        for _ in 0..DEPTH {
            if !(TYPEDEF..=11).contains(&of.kind()) {
                return Some(of);
            }
            of = self.number(of.other)?;
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF with the given types and strings.
    fn btf(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let lengths = [24, 0, 4 * types.len() as u32, 4 * types.len() as u32, strings.len() as u32];
        let head = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let words = lengths.iter().chain(types).flat_map(|word| word.to_ne_bytes());
        head.into_iter().chain(words).chain(strings.iter().copied()).collect()
    }

    #[test]
    fn members_of_nameless_structures_are_found() {
        // struct a { int; struct { int; int b; } }
        let int = [0, 1 << 24, 4, 32];
        let inner = [0, STRUCT << 24 | 2, 8, 0, 1, 0, 3, 1, 32];
        let outer = [1, STRUCT << 24 | 2, 12, 0, 1, 0, 0, 2, 32];
        let bytes = btf(&[&int[..], &inner, &outer].concat(), b"\0a\0b\0");
        let btf = Btf::parse(&bytes).unwrap();
        let (at, _) = btf.member(btf.structure("a").unwrap(), "b", DEPTH).unwrap();
        assert_eq!(at, 64);
        assert!(btf.structure("b").is_none());
    }

    #[test]
    fn the_running_kernel_has_all_offsets() {
        let Ok(bytes) = std::fs::read(PATH) else {
            return eprintln!("NOT RUN: {PATH} is not there: the kernel has no BTF");
        };
        let mut settings = [0; SETTINGS];
        fill(&mut settings, &bytes).unwrap();
        assert_eq!([Setting::Offsets, Setting::Executables].map(|which| settings[which as usize]), [1, 1]);
        for (of, fields) in WANTED.iter().chain(OF_FILES) {
            for (setting, path) in *fields {
                let at = settings[*setting as usize];
                assert!((4..16384).contains(&at), "{of}.{path:?} at {at}");
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut settings = [0; SETTINGS];
        let whole = btf(&[1, STRUCT << 24 | 0xffff, 12], b"\0a\0");
        for end in 0..whole.len() {
            assert!(fill(&mut settings, &whole[..end]).is_err(), "{end}");
        }
        assert!(fill(&mut settings, &whole).is_err());
        assert_eq!(settings[Setting::Offsets as usize], 0);
    }
}
