//! The kernel's functions by name.
//!
//! In: `/proc/kallsyms`, read once, before the capability that shows its addresses is dropped. Out: names with the module behind them. Kept as
//! one sorted table and one string of names, a few megabytes, bounded. Where the kernel hides addresses (`kptr_restrict`), it says so.

use std::fmt;
use std::io::{self, BufRead, Read};

/// Most functions that are kept: a kernel with all its modules has 200,000.
const MAX_SYMBOLS: usize = 1 << 19;
/// Most bytes of names.
const MAX_NAMES: usize = 16 << 20;
/// Longest line that is looked at: names have at most 512 bytes (kernel, `KSYM_NAME_LEN`).
const MAX_LINE: u64 = 1024;

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub struct Kernel {
    /// By address.
    symbols: Vec<Symbol>,
    names: String,
    state: State,
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
    /// Where it begins.
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
        Ok(Self::parse(io::BufReader::new(std::fs::File::open("/proc/kallsyms")?)))
    }

    /// Reads lines `address type name [module]`.
    ///
    /// Source: kernel, `kernel/kallsyms.c`, `s_show`; nm(1) for the types.
    pub fn parse(mut lines: impl BufRead) -> Self {
        let mut kernel = Self::default();
        let (mut line, mut seen) = (Vec::new(), false);
        while kernel.symbols.len() < MAX_SYMBOLS && kernel.names.len() < MAX_NAMES {
            line.clear();
            match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {}
                _ => break,
            }
            if let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(function) {
                seen = true;
                kernel.add(address, name);
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
        let line = self.names.get(symbol.name as usize..)?.split('\n').next()?;
        let (name, module) = match line.split_once('\t') {
            Some((name, module)) => (name, Some(module.trim_start_matches('[').trim_end_matches(']'))),
            None => (line, None),
        };
        Some(Function { address: symbol.address, name, module })
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>() + self.names.capacity()
    }
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

    /// Check that the running kernel's names are read within a few megabytes, or are said to be hidden.
    #[test]
    fn the_running_kernel_is_read() {
        let kernel = Kernel::read().unwrap();
        assert_ne!(kernel.state(), State::Missing);
        assert!(kernel.bytes() < 12 << 20, "{}", kernel.bytes());
        assert_eq!(kernel.state() == State::Known, kernel.function(u64::MAX).is_some());
    }
}
