//! From the bytes of the ring buffer to [`Sample`]s.
//!
//! In: one record, as `profiler_sidecar_ebpf` lays it out. Out: what it says, or why it says nothing. Pure; whatever the bytes are.

use profiler_sidecar_ebpf::{Event as Layout, Executable, Flag, Head, Kind, LabelHead, Sample as Fixed, Started, TOP};

use crate::sample::{Comm, End, Goroutine, Labels, Registers, Sample, Span};

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What ran when the clock ticked.
    Sample(Box<Sample>),
    /// A process runs another program now.
    Exec {
        /// Which.
        pid: u32,
        /// Which program.
        started: Started,
    },
    /// A process has ended.
    Exit {
        /// Which.
        pid: u32,
    },
    /// A process has made another one.
    Fork {
        /// Which; 0: one outside of our pid namespace.
        pid: u32,
        /// The new one.
        child: u32,
    },
}

/// What is wrong with a record: our own bug, for the kernel side is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It ends before what it says it has.
    #[error("a record of the kernel side ends early")]
    Short,
    /// It is of a kind that is not known here.
    #[error("a record of the kernel side is of the unknown kind {0}")]
    Unknown(u32),
}

/// Whether a record is of a sample, also where it cannot be read.
#[must_use]
pub fn is_sample(record: &[u8]) -> bool {
    Cursor(record).word() == Ok(Kind::Sample as u32)
}

/// Reads a record.
///
/// # Errors
///
/// It is not one of ours.
pub fn decode(record: &[u8]) -> Result<Event, Fault> {
    let mut bytes = Cursor(record);
    let kind = bytes.word()?;
    let pid = bytes.word()?;
    match kind {
        kind if kind == Kind::Sample as u32 => Ok(Event::Sample(Box::new(sample(pid, bytes)?))),
        kind if kind == Kind::Exec as u32 => {
            bytes.skip(size_of::<Head>() - 8)?;
            Ok(Event::Exec { pid, started: started(bytes)? })
        }
        kind if kind == Kind::Exit as u32 => Ok(Event::Exit { pid }),
        kind if kind == Kind::Fork as u32 => {
            bytes.skip(std::mem::offset_of!(Layout, child) - 8)?;
            Ok(Event::Fork { pid, child: bytes.word()? })
        }
        kind => Err(Fault::Unknown(kind)),
    }
}

/// The rest of an exec, in the order of [`Started`].
fn started(mut bytes: Cursor<'_>) -> Result<Started, Fault> {
    let program = bytes.long()?;
    let (inode, size, changed_nanos) = (bytes.long()?, bytes.long()?, bytes.long()?);
    let (device, generation) = (bytes.word()?, bytes.word()?);
    Ok(Started { program, executable: Executable { inode, size, changed_nanos, device, generation } })
}

/// The rest of a sample, in the order of [`Fixed`], and what follows it.
fn sample(pid: u32, mut bytes: Cursor<'_>) -> Result<Sample, Fault> {
    let (tid, cpu) = (bytes.word()?, bytes.word()?);
    let (period_nanos, program) = (bytes.long()?, bytes.long()?);
    let comm = Comm(bytes.array()?);
    let registers = Registers { ip: bytes.long()?, sp: bytes.long()?, fp: bytes.long()?, lr: bytes.long()? };
    let goroutine = Goroutine { id: bytes.long()?, start_pc: bytes.long()? };
    let span = Span { trace_id: bytes.array()?, span_id: bytes.array()? };
    let flags = bytes.word()?;
    let [user, kernel, top, labels, attributes, saved] = bytes.halves()?;
    let above = bytes.take(TOP)?;
    let has = |flag: Flag| flags & flag as u32 != 0;
    Ok(Sample {
        pid,
        tid,
        cpu,
        period_nanos,
        program,
        comm,
        registers,
        end: if has(Flag::Cut) {
            End::Cut
        } else if has(Flag::Lost) {
            End::Lost
        } else {
            End::Root
        },
        in_kernel: has(Flag::Kernel),
        user: bytes.longs(user)?,
        kernel: bytes.longs(kernel)?,
        saved: bytes.longs(saved)?,
        is_outer: has(Flag::Outer),
        is_known: has(Flag::Known),
        top: above.get(..usize::from(top)).ok_or(Fault::Short)?.to_vec(),
        goroutine: has(Flag::Goroutine).then_some(goroutine),
        labels: bytes.labels(labels)?,
        labels_cut: has(Flag::LabelsCut),
        attributes: pairs(bytes.take(attributes.into())?),
        span: (has(Flag::Context) && span != Span::default()).then_some(span),
    })
}

/// Attributes as OTEP 4947 writes them: number of the key, length of the value, value. What does not fit is left out.
fn pairs(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut pairs = Vec::new();
    while let [key, length, rest @ ..] = bytes
        && let Some((value, behind)) = rest.split_at_checked(usize::from(*length))
    {
        pairs.push((*key, value.to_vec()));
        bytes = behind;
    }
    pairs
}

/// What is not read yet.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, length: usize) -> Result<(), Fault> {
        self.take(length).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn half(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_ne_bytes)
    }

    fn word(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_ne_bytes)
    }

    fn long(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_ne_bytes)
    }

    fn halves<const N: usize>(&mut self) -> Result<[u16; N], Fault> {
        let mut halves = [0; N];
        for half in &mut halves {
            *half = self.half()?;
        }
        Ok(halves)
    }

    fn longs(&mut self, count: u16) -> Result<Vec<u64>, Fault> {
        let bytes = self.take(8 * usize::from(count))?;
        Ok(bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect())
    }

    fn labels(&mut self, count: u16) -> Result<Labels, Fault> {
        if count == 0 {
            return Ok(Labels::default());
        }
        // Heads are half as long here as those of the pairs; what may follow them is little.
        let mut labels = Labels::with_room(self.0.len() + usize::from(count) * size_of::<LabelHead>());
        for _ in 0..count {
            let head = LabelHead { key: self.half()?, value: self.half()? };
            labels.push(self.take(head.key.into())?, self.take(head.value.into())?);
        }
        Ok(labels)
    }
}

const _: () = assert!(size_of::<Fixed>() == 16 + 16 + 16 + 32 + 16 + 24 + 4 + 12, "all of it is read above");

#[cfg(test)]
mod tests;
