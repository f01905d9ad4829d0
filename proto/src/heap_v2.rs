//! Heap profiles as jemalloc dumps them: text that begins with `heap_v2/` and the interval of sampling.
//!
//! In: a dump. Out: what it counts at each stack, as it stands there: numbers of samples and their bytes, of which whoever reads them
//! makes estimates. Dumps have addresses and no names, so this is not the model yet. Source: jemalloc 5.3.0, src/prof_data.c,
//! `prof_dump_header` and `prof_dump_gctx`.

use std::fmt;

use crate::error::DecodeError;
use crate::limits::{Budget, Limits};

/// What a dump says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// Bytes allocated between samples, on average.
    pub interval: u64,
    /// Of all stacks together, also where the dump was cut behind some of them.
    pub in_all: Counts,
    /// Of each stack, in the dump's order.
    pub stacks: Vec<Stack>,
}

/// What was counted at one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// Where calls return to, leaf first.
    pub addresses: Box<[u64]>,
    /// By all threads.
    pub counts: Counts,
}

/// Sampled blocks: their number and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that live.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Blocks that were allocated; 0 unless jemalloc was told to keep count (`prof_accum`).
    pub allocated: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
}

/// The dump in `text`. What it says of single threads, and of mappings, is passed over.
///
/// # Errors
///
/// [`DecodeError`] if `text` does not begin as a dump does, a stack or a count is not one, a stack has no counts, or the input goes beyond
/// `limits`.
pub fn decode(text: &[u8], limits: &Limits) -> Result<Dump, DecodeError> {
    limits.check_len(text.len())?;
    let mut budget = Budget::new(limits);
    let mut lines = text.split(|byte| *byte == b'\n').enumerate();
    let first = lines.next().and_then(|(_, line)| line.strip_prefix(b"heap_v2/")).and_then(number);
    let interval = first.filter(|interval| *interval > 0).ok_or_else(|| malformed(0, "no heap_v2/ and interval"))?;
    let (mut in_all, mut stacks, mut open) = (None, Vec::new(), None);
    for (at, line) in lines {
        if line == b"MAPPED_LIBRARIES:" {
            break;
        } else if let Some(addresses) = line.strip_prefix(b"@") {
            if open.is_some() || in_all.is_none() {
                return Err(malformed(at, "a stack, where counts are due"));
            }
            budget.spend_on::<Stack>(1)?;
            budget.spend_on::<u64>(addresses.iter().filter(|byte| **byte == b' ').count())?;
            open = Some(stack(addresses).ok_or_else(|| malformed(at, "an address is not a number"))?);
        } else if let Some(text) = line.strip_prefix(b"  t*: ") {
            let counts = counts(text).ok_or_else(|| malformed(at, "counts are not \"1: 2 [3: 4]\""))?;
            match open.take() {
                Some(addresses) => stacks.push(Stack { addresses, counts }),
                None if in_all.is_none() => in_all = Some(counts),
                None => return Err(malformed(at, "counts of no stack")),
            }
        }
    }
    match in_all {
        Some(in_all) if open.is_none() => Ok(Dump { interval, in_all, stacks }),
        _ => Err(DecodeError::Malformed { format: FORMAT, detail: "it ends before the counts".to_owned() }),
    }
}

const FORMAT: &str = "dump of jemalloc";

fn malformed(line: usize, what: &str) -> DecodeError {
    DecodeError::Malformed { format: FORMAT, detail: format!("line {}: {what}", line + 1) }
}

/// ` 0x1 0x2`.
fn stack(text: &[u8]) -> Option<Box<[u64]>> {
    let words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.map(|word| u64::from_str_radix(digits(word.strip_prefix(b"0x").unwrap_or(word))?, 16).ok()).collect()
}

/// `1: 2 [3: 4]`.
fn counts(text: &[u8]) -> Option<Counts> {
    let (now, then) = split(text, b" [")?;
    let (live, live_bytes) = split(now, b": ")?;
    let (allocated, allocated_bytes) = split(then.strip_suffix(b"]")?, b": ")?;
    Some(Counts {
        live: number(live)?,
        live_bytes: number(live_bytes)?,
        allocated: number(allocated)?,
        allocated_bytes: number(allocated_bytes)?,
    })
}

fn split<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(separator.len()).position(|window| window == separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

fn number(text: &[u8]) -> Option<u64> {
    digits(text)?.parse().ok()
}

/// A text without a sign, which numbers may have in Rust and have not in dumps.
fn digits(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for Dump {
    /// As jemalloc writes it, without threads and mappings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heap_v2/{}\n  t*: {}\n", self.interval, self.in_all)?;
        for Stack { addresses, counts } in &self.stacks {
            f.write_str("@")?;
            addresses.iter().try_for_each(|address| write!(f, " {address:#x}"))?;
            write!(f, "\n  t*: {counts}\n")?;
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}: {}]", self.live, self.live_bytes, self.allocated, self.allocated_bytes)
    }
}
