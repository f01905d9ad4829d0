//! The walk along one of the runtime's lists of profile buckets.
//!
//! In: the address of the list's head. Out: each bucket once, with its stack and its record as bytes; what could not be read or believed is counted.
//! A bucket never changes but for its record and is never freed (mprof.go: "None of the fields in this bucket header are modified after
//! creation"), so a list can be walked while the program runs: one begins at the newest and sees all that were there.
//! Bounded: so many buckets, a stack of [`DEPTH_LIMIT`](bucket::DEPTH_LIMIT), all stacks by [`BYTES`](stacks::BYTES), each address once, all of it by [`Work`].

use std::sync::Arc;

use profiler_proto::hash::Set;

use crate::go::layouts::bucket;
use crate::target::Fault;

use super::memory::{Memory, Pages, word_at};
use super::stacks::{self, Stacks};
use super::variables::Code;
use super::work::{Metered, Work};

/// `logicalStackSentinel` (tracestack.go), which stands before stacks of the runtime's own locks (1.23 to 1.26); it is no address.
pub(super) const LOGICAL: u64 = u64::MAX;
/// How far beyond the bound buckets are still counted: a program may make more as fast as they are read.
const COUNTED: u64 = 1 << 20;

/// A bucket as it stands in memory.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Its address, which never is another one's.
    pub(super) at: u64,
    /// Size of an object (heap).
    pub(super) size: u64,
    /// Return addresses, leaf first; equal ones are one.
    pub(super) stack: Arc<[u64]>,
    /// What follows the stack.
    pub(super) record: Vec<u8>,
}

/// What became of the buckets of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walk {
    /// Handed out.
    pub taken: u64,
    /// Left out, as there were more than asked for; of very many the first million, and what is behind counts as broken.
    pub beyond: u64,
    /// Left out, as the stacks before have all the bytes that a capture may have.
    pub over_bytes: u64,
    /// Left out, as an address in the stack is no code of the program.
    pub foreign: u64,
    /// Left out, as its figures cannot be: more in use than there are addresses, a count that is no number.
    pub implausible: u64,
    /// Ended lists: a capture had done as much as one may, and what stood behind is missing.
    pub over_work: u64,
    /// Places at which the list could not be followed: memory that is not there, a header that cannot be, a cycle. What stood behind is missing.
    pub broken: u64,
}

impl Walk {
    /// Whether all that the list has was taken.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.beyond + self.over_bytes + self.foreign + self.implausible + self.over_work + self.broken == 0
    }
}

/// Which list, and how it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    /// Address of the variable that points to the first bucket.
    pub(super) head: u64,
    /// The bucket at which the walk ends: 0 is the end of the list.
    pub(super) end: u64,
    /// `bucket.typ` of all of them.
    pub(super) kind: u64,
    /// Bytes of the record.
    pub(super) record: usize,
    /// Most buckets that are taken.
    pub(super) most: usize,
}

impl List {
    /// Hands each bucket to `each`, which says whether its record can be, as long as there is `work` left.
    pub(super) fn walk<M: Memory>(
        self,
        memory: &M,
        code: &impl Code,
        work: &Work,
        mut each: impl FnMut(Bucket) -> bool,
    ) -> Result<Walk, Fault> {
        let (measured, code) = (Metered::new(memory, work), Metered::new(code, work));
        let mut taking = Taking { pages: Pages::new(&measured), stacks: Stacks::new(stacks::BYTES), code };
        let (mut walk, mut seen, mut mark) = (Walk::default(), Set::default(), 0);
        let Some(mut next) = memory.word(self.head)? else { return Ok(Walk { broken: 1, ..walk }) };
        while next != 0 && next != self.end {
            let is_new = next != mark && !seen.contains(&next);
            let Some((header, depth)) = self.header(&mut taking.pages, next)?.filter(|_| is_new) else {
                *if work.is_spent() { &mut walk.over_work } else { &mut walk.broken } += 1;
                break;
            };
            if seen.len() < self.most {
                seen.insert(next);
                self.take(&mut taking, (next, &header, depth), &mut walk, &mut each)?;
            } else {
                walk.beyond += 1;
                if walk.beyond >= COUNTED {
                    walk.broken += 1;
                    break;
                }
                // A circle of what is only counted comes back to where it was at a power of two.
                mark = if walk.beyond.is_power_of_two() { next } else { mark };
            }
            next = word_at(&header, bucket::ALL_NEXT);
        }
        Ok(walk)
    }

    /// Hands on one bucket, or counts why not.
    fn take<M: Memory, C: Code>(
        self,
        taking: &mut Taking<'_, M, C>,
        (at, header, depth): (u64, &[u8], usize),
        walk: &mut Walk,
        each: &mut impl FnMut(Bucket) -> bool,
    ) -> Result<(), Fault> {
        let Some((stack, record)) = self.bucket(&mut taking.pages, at, depth)? else {
            // Where it is for want of work, the list ends here, and is counted.
            walk.broken += u64::from(!taking.code.is_spent());
            return Ok(());
        };
        // The heap's have no such mark.
        let unmarked = stack.strip_prefix(&[LOGICAL]).filter(|_| self.kind != bucket::MEMORY);
        let stack = unmarked.unwrap_or(&stack);
        if !is_ours(&taking.code, stack) {
            walk.foreign += u64::from(!taking.code.is_spent());
        } else if let Some(stack) = taking.stacks.keep(stack) {
            let is_plausible = each(Bucket { at, size: word_at(header, bucket::SIZE), stack, record });
            *if is_plausible { &mut walk.taken } else { &mut walk.implausible } += 1;
        } else {
            walk.over_bytes += 1;
        }
        Ok(())
    }

    /// The header at `at`, with the depth of its stack; none where there is none or it cannot be one.
    fn header<M: Memory>(
        self,
        pages: &mut Pages<'_, M>,
        at: u64,
    ) -> Result<Option<([u8; bucket::HEADER], usize)>, Fault> {
        let mut header = [0; bucket::HEADER];
        if !at.is_multiple_of(8) || !pages.fill(at, &mut header)? || word_at(&header, bucket::TYPE) != self.kind {
            return Ok(None);
        }
        let depth = word_at(&header, bucket::DEPTH);
        Ok((depth <= bucket::DEPTH_LIMIT).then_some((header, depth as usize)))
    }

    /// The stack of a bucket, and what follows it.
    fn bucket<M: Memory>(self, pages: &mut Pages<'_, M>, at: u64, depth: usize) -> Result<Option<Content>, Fault> {
        let Some(stack) = pages.words(at.wrapping_add(bucket::HEADER as u64), depth)? else { return Ok(None) };
        let mut record = vec![0; self.record];
        let behind = at.wrapping_add((bucket::HEADER + 8 * depth) as u64);
        Ok(pages.fill(behind, &mut record)?.then_some((stack, record)))
    }
}

/// A stack with the bytes of its record.
type Content = (Vec<u64>, Vec<u8>);

/// What goes on from one bucket to the next.
struct Taking<'m, M: ?Sized, C> {
    pages: Pages<'m, Metered<'m, M>>,
    stacks: Stacks<u64>,
    code: Metered<'m, C>,
}

/// Whether all addresses are of the program's functions; each is a return address, which may lie one behind the last instruction.
fn is_ours(code: &impl Code, stack: &[u64]) -> bool {
    stack.iter().all(|pc| code.function(pc.wrapping_sub(1)).is_some())
}
