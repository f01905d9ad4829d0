//! Where a running Go program keeps the variables that are read: by its symbols, where it has any; else by its debug information; else decoded from its own
//! instructions, so that stripped and position-independent programs are like any other. (The code of programs for a debugger, `-gcflags=all="-N -l"`, goes
//! other ways than is looked for; they have symbols, or debug information.)
//!
//! In: the program's functions and variables by name, its code and data as they are loaded. Out: [`Variables`], addresses in the process; one that cannot be
//! found is absent, by name, and only what needs it is refused. Nothing is guessed: an address counts where it lies in the program's
//! data and all functions that use the variable agree on it. All ways are verified against DWARF in `sidecar/tests/runtime/variables.rs`.

use std::ops::Range;

use crate::elf::Machine;
use crate::go::layouts::figures::{collections, pacer};
use crate::go::layouts::{Layout, Ticks};
use crate::target::Fault;

use super::memory::Memory;
use super::operands::operands;

/// Most bytes of a function that are looked through; `runtime.schedinit`, `selectgo` are the longest and below that.
const FUNCTION: u64 = 16 << 10;

/// The functions that use the variables, or tell whether heap profiling, or what loads plugins, is in the program.
pub(super) const FUNCTIONS: &[&str] = &[
    "runtime.stkbucket",
    "runtime.mProf_FlushLocked",
    "runtime.mProf_Flush",
    "runtime.mProf_PostSweep",
    "runtime.mProf_Malloc",
    "runtime.mProf_Free",
    "runtime.blockevent",
    "runtime.chanrecv",
    "runtime.selectgo",
    "runtime.semacquire1",
    "runtime.profilealloc",
    "runtime.allocmcache",
    "runtime.schedinit",
    "runtime.tickspersecond",
    "runtime.ticksPerSecond",
    "runtime.allgadd",
    "runtime.gcControllerCommit",
    "runtime.gcTrigger.test",
    "runtime.gcMarkTermination",
    "runtime.gcBgMarkStartWorkers",
    "runtime.procresize",
    "runtime.stopTheWorldWithSema",
    "runtime.startTheWorldWithSema",
    "runtime.memProfileInternal",
    "runtime.MemProfile",
    "plugin.open",
];

/// The variables that symbols and debug information may name.
pub(super) const SYMBOLS: &[&str] = &[
    "runtime.mbuckets",
    "runtime.bbuckets",
    "runtime.xbuckets",
    "runtime.MemProfileRate",
    "runtime.blockprofilerate",
    "runtime.mutexprofilerate",
    "runtime.ticks",
    "runtime.allgs",
    "runtime.gcController",
    "runtime.memstats",
    "runtime.gomaxprocs",
    "runtime.profMemActiveLock",
];

/// The functions of a loaded Go program.
pub trait Code {
    /// Which processor it is for.
    fn machine(&self) -> Machine;
    /// Addresses of the function of this name in the process; of [`FUNCTIONS`] only.
    fn extent(&self, name: &str) -> Option<Range<u64>>;
    /// Where a variable is by the symbol of this name, or by debug information; of [`SYMBOLS`] only.
    fn symbol(&self, name: &str) -> Option<u64>;
    /// Addresses of the program's variables in the process: its writable segment.
    fn data(&self) -> Range<u64>;
    /// The function that holds an address of the process.
    fn function(&self, pc: u64) -> Option<Function>;
    /// Bytes from the stack pointer at `pc` up to the return address (amd64), or to the caller's frame (arm64).
    fn depth(&self, pc: u64) -> Option<u64>;
    /// What looking up functions that were not known has cost until now, as the work of reading so many bytes.
    fn looked_up(&self) -> u64 {
        0
    }
}

/// What the walk of a stack needs to know of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its first address.
    pub entry: u64,
    /// Whether it is the outermost of its stack (`abi.FuncFlagTopFrame`).
    pub is_top: bool,
    /// Whether it switches stacks, so that no walk leads past it (`abi.FuncFlagSPWrite`).
    pub writes_sp: bool,
    /// Whether it was put there by a signal, not called: its caller's address is that of an instruction that has not ended.
    pub is_injected: bool,
}

/// Addresses of variables of the runtime in a process; none for what was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variables {
    /// `runtime.mbuckets`; `bbuckets` and `xbuckets` stand behind it.
    pub buckets: Option<u64>,
    /// `runtime.MemProfileRate`.
    pub memory_rate: Option<u64>,
    /// `runtime.blockprofilerate`; `mutexprofilerate` stands behind it.
    pub block_rate: Option<u64>,
    /// `runtime.ticks`.
    pub ticks: Option<u64>,
    /// `runtime.allgs`: pointer, length, capacity.
    pub goroutines: Option<u64>,
    /// `runtime.gcController`.
    pub pacer: Option<u64>,
    /// `runtime.memstats.last_gc_unix`, behind which the figures of collections stand.
    pub collections: Option<u64>,
    /// `runtime.gomaxprocs`.
    pub processors: Option<u64>,
    /// `runtime.profMemActiveLock`: taken while heap records are published, and while the program itself reads them.
    pub publishing: Option<u64>,
}

impl Variables {
    /// Looks them up in a loaded program.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn find(code: &impl Code, memory: &impl Memory, layout: &Layout) -> Result<Self, Fault> {
        let search = Search { code, memory };
        let (clock, words) = match layout.ticks {
            Ticks::Rate => ("runtime.tickspersecond", 2),
            Ticks::Start => ("runtime.ticksPerSecond", 4),
        };
        Ok(Self {
            buckets: search.named(&["runtime.mbuckets", "runtime.bbuckets", "runtime.xbuckets"], Search::buckets)?,
            memory_rate: search.named(&["runtime.MemProfileRate"], |search| search.common(SAMPLERS))?,
            block_rate: search.named(&["runtime.blockprofilerate", "runtime.mutexprofilerate"], Search::block_rate)?,
            ticks: search.named(&["runtime.ticks"], |search| search.run(clock, words))?,
            goroutines: search.named(&["runtime.allgs"], |search| search.run("runtime.allgadd", 3))?,
            pacer: search.named(&["runtime.gcController"], Search::pacer)?,
            collections: match search.named(&["runtime.memstats"], |_| Ok(None))? {
                Some(memstats) => memstats.checked_add(layout.last_gc_unix as u64),
                None => search.collections()?,
            },
            processors: search.named(&["runtime.gomaxprocs"], |search| search.common(PROCESSORS))?,
            publishing: search.named(&["runtime.profMemActiveLock"], Search::publishing)?,
        })
    }
}

/// Who reads `MemProfileRate`.
const SAMPLERS: &[&str] = &["runtime.profilealloc", "runtime.allocmcache", "runtime.schedinit"];
/// Who reads `gomaxprocs`.
const PROCESSORS: &[&str] = &[
    "runtime.procresize",
    "runtime.gcBgMarkStartWorkers",
    "runtime.stopTheWorldWithSema",
    "runtime.startTheWorldWithSema",
];

struct Search<'a, C, M> {
    code: &'a C,
    memory: &'a M,
}

impl<C: Code, M: Memory> Search<'_, C, M> {
    /// The first of these variables, where symbols say that they stand one behind the other in the program's data; else what `decode` finds.
    fn named(
        &self,
        names: &[&str],
        decode: impl FnOnce(&Self) -> Result<Option<u64>, Fault>,
    ) -> Result<Option<u64>, Fault> {
        let (found, data): (Vec<_>, _) = (names.iter().map(|name| self.code.symbol(name)).collect(), self.code.data());
        let first = found.first().copied().flatten().filter(|first| data.contains(first));
        let is_in_place = |first: &u64| (0..).zip(&found).all(|(at, found)| *found == first.checked_add(8 * at));
        first.filter(is_in_place).map_or_else(|| decode(self), |first| Ok(Some(first)))
    }

    /// `mProf_FlushLocked` uses the first of the three, `stkbucket` all of them.
    fn buckets(&self) -> Result<Option<u64>, Fault> {
        let all = self.used("runtime.stkbucket")?;
        let first = self.used("runtime.mProf_FlushLocked")?;
        Ok(only(first.into_iter().filter(|address| in_a_row(&all, *address, 3))))
    }

    /// Who may wait reads the rate; `semacquire1` reads the one for mutexes too, which stands behind it. What else may wait is in a program that
    /// has channels.
    fn block_rate(&self) -> Result<Option<u64>, Fault> {
        let acquire = self.used("runtime.semacquire1")?;
        let mut found = self.used("runtime.blockevent")?;
        found.retain(|address| in_a_row(&acquire, *address, 2));
        for name in ["runtime.chanrecv", "runtime.selectgo"] {
            let used = self.used(name)?;
            found.retain(|address| used.is_empty() || used.contains(address));
        }
        Ok(only(found.into_iter()))
    }

    /// Who sets the pace reads what was asked for and keeps the goal before; who begins a collection asks whether there is a pace, and what is live.
    fn pacer(&self) -> Result<Option<u64>, Fault> {
        self.spread(&[
            ("runtime.gcControllerCommit", &[pacer::PERCENT, pacer::LIMIT, pacer::LAST_GOAL]),
            ("runtime.gcTrigger.test", &[pacer::PERCENT, pacer::LIVE]),
        ])
    }

    /// Who ends a collection writes when that was, how long it paused and how many there were; who begins one reads when the last was.
    fn collections(&self) -> Result<Option<u64>, Fault> {
        let ended = [collections::LAST, collections::PAUSED, collections::COUNT, collections::LAST_NANOTIME];
        self.spread(&[("runtime.gcMarkTermination", &ended), ("runtime.gcTrigger.test", &[collections::LAST_NANOTIME])])
    }

    /// Who publishes takes it; who counts an allocation or that it was freed uses all else that is used there.
    fn publishing(&self) -> Result<Option<u64>, Fault> {
        let mut found = self.used("runtime.mProf_Flush")?;
        let swept = self.used("runtime.mProf_PostSweep")?;
        found.retain(|address| swept.is_empty() || swept.contains(address));
        for name in ["runtime.mProf_Malloc", "runtime.mProf_Free"] {
            let used = self.used(name)?;
            if used.is_empty() {
                return Ok(None);
            }
            found.retain(|address| !used.contains(address));
        }
        Ok(only(found.into_iter()))
    }

    /// The one address from which on each of these functions uses what stands at its distances.
    fn spread(&self, users: &[(&str, &[usize])]) -> Result<Option<u64>, Fault> {
        let used = users.iter().map(|(name, _)| self.used(name)).collect::<Result<Vec<_>, Fault>>()?;
        let uses = |first: u64| {
            let at = |used: &Vec<u64>, by: &usize| used.contains(&first.wrapping_add(*by as u64));
            users.iter().zip(&used).all(|((_, distances), used)| distances.iter().all(|by| at(used, by)))
        };
        Ok(only(used.iter().flatten().take(used.first().map_or(0, Vec::len)).copied().filter(|first| uses(*first))))
    }

    /// What all these functions use, if it is one variable.
    fn common(&self, names: &[&str]) -> Result<Option<u64>, Fault> {
        let mut found: Option<Vec<u64>> = None;
        for name in names {
            let used = self.used(name)?;
            found = Some(match found {
                None => used,
                Some(found) => found.into_iter().filter(|address| used.contains(address)).collect(),
            });
        }
        Ok(only(found.unwrap_or_default().into_iter()))
    }

    /// The first of `count` words one behind the other that a function uses, if there is one such row.
    fn run(&self, name: &str, count: u64) -> Result<Option<u64>, Fault> {
        let used = self.used(name)?;
        Ok(only(used.iter().copied().filter(|address| in_a_row(&used, *address, count))))
    }

    /// The variables that a function uses; none where there is no such function.
    fn used(&self, name: &str) -> Result<Vec<u64>, Fault> {
        let Some(extent) = self.code.extent(name) else { return Ok(Vec::new()) };
        let length = extent.end.saturating_sub(extent.start).min(FUNCTION);
        let mut bytes = vec![0; length as usize];
        if !self.memory.fill(extent.start, &mut bytes)? {
            return Ok(Vec::new());
        }
        let data = self.code.data();
        let mut used = operands(self.code.machine(), &bytes, extent.start);
        used.retain(|address| data.contains(address));
        Ok(used)
    }
}

fn in_a_row(used: &[u64], first: u64, count: u64) -> bool {
    first.is_multiple_of(8) && (1..count).all(|word| used.contains(&first.wrapping_add(8 * word)))
}

/// The one of `found`; none where there are several, for then nothing says which.
fn only(mut found: impl Iterator<Item = u64>) -> Option<u64> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
