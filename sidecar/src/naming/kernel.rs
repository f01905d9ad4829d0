//! The kernel's functions by name.
//!
//! In: `/proc/kallsyms`, opened before the capability that shows its addresses is dropped, and read again when modules come or go: the kernel asks
//! whether who opened it may see addresses, not who reads it (kernel/kallsyms.c, `kallsyms_open`). Out: names with the module behind them. Kept as
//! one sorted table and one string of names, a few megabytes, bounded. Where the kernel hides addresses (`kptr_restrict`), it says so.

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, Read, Seek};
use std::time::{Duration, Instant};

/// Most functions that are kept: a kernel with all its modules has 200,000.
const MAX_SYMBOLS: usize = 1 << 19;
/// Most bytes of names.
const MAX_NAMES: usize = 16 << 20;
/// Longest line that is looked at: names have at most 512 bytes (kernel, `KSYM_NAME_LEN`).
const MAX_LINE: u64 = 1024;
/// What the padding before a function is called, into which the kernel may put code that counts its calls: it is of the function, which begins there. In kernels
/// that have it, it is half of all symbols. Source: kernel, `PREFIX_SYMBOLS` of arch/x86/Kconfig, arch/x86/kernel/callthunks.c.
const PADDING: &str = "__pfx_";
/// The module that the kernel says programs of eBPF are of, whose code it makes when they are loaded.
const BPF: &str = "bpf";
/// What such code is: of none but those that are listed it is said where they begin, and of no one where it ends. Source: kernel, kernel/bpf/core.c, `bpf_prog_kallsyms_candidate`,
/// `bpf_get_kallsym`.
const SOME_BPF: Function<'_> = Function { address: 1, name: "[bpf]", module: None };
/// How far a function reaches at most, where none begins behind it: what lies behind the last one of a module, or of the kernel, is none of it.
const MAX_FUNCTION: u64 = 256 << 10;
/// How often it is looked whether modules came or went.
const MODULES: Duration = Duration::from_secs(10);
/// Most bytes of the list of modules: one has a hundred.
const MAX_MODULES: u64 = 4 << 20;

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    /// By address.
    symbols: Vec<Symbol>,
    names: String,
    state: State,
    source: Option<Source>,
}

/// Where it is read.
#[derive(Debug)]
struct Source {
    symbols: File,
    /// `/proc/modules`; none where the kernel has no modules.
    modules: Option<File>,
    /// What stood there.
    loaded: u64,
    looked: Option<Instant>,
}

/// Whether the kernel's functions can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// `/proc/kallsyms` cannot be read, or says nothing.
    #[default]
    Missing,
    /// All addresses read as zero: `kernel.kptr_restrict` hides them from who lacks CAP_SYSLOG.
    Hidden,
    /// There are names.
    Known,
}

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// Where it begins; of all code of eBPF 1, at which no function begins.
    pub address: u64,
    /// Its name.
    pub name: &'a str,
    /// The module that it is of, if it is of one.
    pub module: Option<&'a str>,
}

impl fmt::Display for Function<'_> {
    /// `do_work`, `nf_hook [nf_tables]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.module.map_or(Ok(()), |module| write!(f, " [{module}]"))
    }
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    address: u64,
    /// Where its name begins; it ends where the line does.
    name: u32,
}

impl Kernel {
    /// Reads `/proc/kallsyms`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read() -> io::Result<Self> {
        Ok(Self::of(File::open("/proc/kallsyms")?, File::open("/proc/modules").ok()))
    }

    /// Reads the functions in `symbols`, and again when `modules` tells of others.
    fn of(symbols: File, modules: Option<File>) -> Self {
        let mut source = Source { symbols, modules, loaded: 0, looked: None };
        source.has_changed();
        source.read()
    }

    /// Reads the functions again where modules came or went; whether that was so. Looks at most every ten seconds.
    pub fn refresh(&mut self, now: Instant) -> bool {
        let Some(source) = &mut self.source else { return false };
        let is_due = source.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= MODULES);
        source.looked = if is_due { Some(now) } else { source.looked };
        if !is_due || !source.has_changed() {
            return false;
        }
        if let Some(source) = self.source.take() {
            *self = source.read();
        }
        true
    }

    /// Reads lines `address type name [module]`.
    ///
    /// Source: kernel, `kernel/kallsyms.c`, `s_show`; nm(1) for the types.
    pub fn parse(mut lines: impl BufRead) -> Self {
        let mut kernel = Self::default();
        let (mut line, mut seen, mut is_padded) = (Vec::new(), false, false);
        while kernel.symbols.len() < MAX_SYMBOLS && kernel.names.len() < MAX_NAMES {
            line.clear();
            match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {}
                _ => break,
            }
            if let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(function) {
                seen = true;
                let padded = name.strip_prefix(PADDING);
                // The function behind its padding, which the kernel tells of right before.
                if !is_padded || padded.is_some() || kernel.last_name() != Some(name) {
                    kernel.add(address, padded.unwrap_or(name));
                }
                is_padded = padded.is_some();
            }
        }
        kernel.symbols.sort_by_key(|symbol| symbol.address);
        kernel.symbols.dedup_by_key(|symbol| symbol.address);
        kernel.symbols.shrink_to_fit();
        kernel.names.shrink_to_fit();
        kernel.state = match (seen, kernel.symbols.is_empty()) {
            (_, false) => State::Known,
            (true, true) => State::Hidden,
            (false, true) => State::Missing,
        };
        kernel
    }

    fn add(&mut self, address: u64, name: &str) {
        if address == 0 {
            return;
        }
        let Ok(at) = u32::try_from(self.names.len()) else { return };
        self.symbols.push(Symbol { address, name: at });
        self.names.push_str(name);
        self.names.push('\n');
    }

    /// Of the function that was added last.
    fn last_name(&self) -> Option<&str> {
        self.symbols.last().and_then(|last| self.name(last))
    }

    fn name(&self, symbol: &Symbol) -> Option<&str> {
        self.names.get(symbol.name as usize..)?.split('\n').next()
    }

    /// Whether there are names.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The function at an address.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Function<'_>> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(behind.checked_sub(1)?)?;
        if address - symbol.address > MAX_FUNCTION {
            return None;
        }
        let line = self.name(symbol)?;
        let (name, module) = match line.split_once('\t') {
            Some((name, module)) => (name, Some(module.trim_start_matches('[').trim_end_matches(']'))),
            None => (line, None),
        };
        Some(if module == Some(BPF) { SOME_BPF } else { Function { address: symbol.address, name, module } })
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>() + self.names.capacity()
    }
}

impl Source {
    /// The functions, and this with them.
    fn read(mut self) -> Kernel {
        let rewound = self.symbols.rewind();
        let mut kernel =
            rewound.map_or_else(|_| Kernel::default(), |()| Kernel::parse(io::BufReader::new(&self.symbols)));
        kernel.source = Some(self);
        kernel
    }

    /// Whether there are other modules than the last time.
    fn has_changed(&mut self) -> bool {
        let before = self.loaded;
        let mut text = String::new();
        if let Some(modules) = &mut self.modules
            && modules.rewind().and_then(|()| modules.take(MAX_MODULES).read_to_string(&mut text)).is_ok()
        {
            self.loaded = loaded(&text);
        }
        self.loaded != before
    }
}

/// Which modules there are, and where. Source: kernel/module/procfs.c, `m_show`: name, size, uses, users, state, address.
fn loaded(modules: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in modules.lines() {
        let mut words = line.split(' ');
        (words.next(), words.next(), words.nth(3)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Address and `name[\t[module]]` of a line about code.
fn function(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.trim_end_matches('\n').split_once(' ')?;
    let (kind, name) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    (matches!(kind, "t" | "T" | "w" | "W") && !name.is_empty()).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kernel: &Kernel, address: u64) -> Option<String> {
        kernel.function(address).map(|function| function.to_string())
    }

    /// Check that an address is in the function that begins at or before it, that data is none, and that modules are told.
    #[test]
    fn functions_are_found_with_their_modules() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t do_work\nffffffff81000180 D jiffies\nffffffffc0001000 t nf_hook\t[nf_tables]\n";
        let kernel = Kernel::parse(text.as_bytes());
        assert_eq!(kernel.state(), State::Known);
        assert_eq!(name(&kernel, 0xffff_ffff_8100_00ff), Some("_stext".into()));
        assert_eq!(name(&kernel, 0xffff_ffff_8100_01ff), Some("do_work".into()));
        assert_eq!(name(&kernel, 0xffff_ffff_c000_1001), Some("nf_hook [nf_tables]".into()));
        assert_eq!(name(&kernel, 0x1000), None);
    }

    /// Check that code of eBPF has no program's name: behind one that is listed may be one that is not.
    #[test]
    fn programs_of_ebpf_are_not_told_apart() {
        let text = "ffffffffc0001000 t nf_hook\t[nf_tables]\nffffffffc0002000 t bpf_prog_6deef7357e7b4530_sd_fw\t[bpf]\n\
            ffffffffc0002100 t bpf_trampoline_6442\t[bpf]\n";
        let kernel = Kernel::parse(text.as_bytes());
        let at = [0xffff_ffff_c000_1010, 0xffff_ffff_c000_2010, 0xffff_ffff_c000_2110];
        assert_eq!(at.map(|at| name(&kernel, at).unwrap()), ["nf_hook [nf_tables]", "[bpf]", "[bpf]"]);
    }

    /// Check that a function begins with its padding, in a module as well, and that another one of its name stays one.
    #[test]
    fn padding_is_of_the_function_behind_it() {
        let text = "1000 t __pfx_work\n1010 t work\n1040 t __pfx_work\n1050 t work\n1080 t work\n10c0 t plain\n\
            8000 t __pfx_hook\t[net]\n8010 t hook\t[net]\n";
        let kernel = Kernel::parse(text.as_bytes());
        let begins: Vec<u64> = kernel.symbols.iter().map(|symbol| symbol.address).collect();
        assert_eq!(begins, [0x1000, 0x1040, 0x1080, 0x10c0, 0x8000]);
        let names = [0x1000, 0x1010, 0x104f, 0x1080, 0x10c0, 0x8001].map(|address| name(&kernel, address).unwrap());
        assert_eq!(names, ["work", "work", "work", "work", "plain", "hook [net]"]);
    }

    /// Check that hidden addresses are a state of their own, and that what is no line is left out.
    #[test]
    fn hidden_addresses_are_said() {
        assert_eq!(
            Kernel::parse("0000000000000000 T _stext\n0000000000000000 t x\n".as_bytes()).state(),
            State::Hidden
        );
        assert_eq!(Kernel::parse(&b"\xff\xfe\n\nzz T x\n1 T\n"[..]).state(), State::Missing);
        let long = format!("1000 T {}\n2000 T end\n", "n".repeat(5000));
        assert_eq!(name(&Kernel::parse(long.as_bytes()), 0x2000), Some("end".into()));
    }

    /// Check that functions of a module that is loaded later have no name before it is known, and theirs afterwards, and that it is not read again as
    /// long as nothing changes but who uses a module.
    #[test]
    fn modules_that_come_later_have_their_own_names() {
        let folder = std::env::temp_dir().join(format!("profiler-kallsyms-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (symbols, modules) = (folder.join("kallsyms"), folder.join("modules"));
        let core = "ffffffff81000000 T _stext\nffffffff81001000 T last\n";
        std::fs::write(&symbols, core).unwrap();
        std::fs::write(&modules, "old 4096 1 - Live 0xffffffffc0000000\n").unwrap();
        let open = |path| File::open(path).unwrap();
        let mut kernel = Kernel::of(open(&symbols), Some(open(&modules)));
        let (at, now) = (0xffff_ffff_c010_0010, Instant::now());
        assert_eq!((name(&kernel, at), name(&kernel, 0xffff_ffff_8100_1fff)), (None, Some("last".into())));
        std::fs::write(&symbols, format!("{core}ffffffffc0100000 t begin\t[new]\n")).unwrap();
        std::fs::write(&modules, "old 4096 2 new, Live 0xffffffffc0000000\n").unwrap();
        assert!(!kernel.refresh(now));
        let new = "old 4096 2 new, Live 0xffffffffc0000000\nnew 8192 0 - Live 0xffffffffc0100000\n";
        std::fs::write(&modules, new).unwrap();
        assert!(!kernel.refresh(now + MODULES / 2) && kernel.refresh(now + MODULES));
        assert_eq!(name(&kernel, at), Some("begin [new]".into()));
        assert!(!kernel.refresh(now + 3 * MODULES));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Check that the running kernel's names are read within a few megabytes, or are said to be hidden.
    #[test]
    fn the_running_kernel_is_read() {
        let kernel = Kernel::read().unwrap();
        assert_ne!(kernel.state(), State::Missing);
        assert!(kernel.bytes() < 12 << 20, "{}", kernel.bytes());
        let last = kernel.symbols.last().map_or(0, |last| last.address);
        assert_eq!(kernel.state() == State::Known, kernel.function(last).is_some());
    }
}
