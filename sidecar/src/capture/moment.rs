//! Makes of heap records that were read one after the other those of one moment.
//!
//! In: records as a walk of the list gave them. Out: the same as they all stood at one moment, at which nobody published any, and whether there was such a
//! moment. The runtime publishes the records of a collection bucket by bucket (`mProf_FlushLocked`), so that a walk may see some of them as of one collection
//! and some as of the next. But what is published only ever grows, and under a lock. So the records are read again, in the same order, until they are twice the same:
//! then each of them stood so between the two readings, and if the lock was free there, nobody was halfway through. Buckets that are new since the walk
//! must not be published yet.
//! Bounded: [`READINGS`] for a walk, [`NEW`] buckets that are new, all of it by [`Work`].
//!
//! Sources: runtime/mprof.go (`mProf_Flush`, `mProf_PostSweep`: `profMemActiveLock` is held), runtime/runtime2.go (`mutex`: its `key` is 0 where nobody has it).

use crate::go::layouts::{Cycle, bucket};
use crate::target::Fault;

use super::buckets::List;
use super::heap::{Counts, Record};
use super::memory::{Memory, Pages};
use super::variables::Code;
use super::work::{Metered, Work};

/// How often records are read again after a walk.
const READINGS: usize = 8;
/// Most buckets since the walk that are looked at; of more, it is walked again.
const NEW: usize = 4096;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The records are as of one moment.
    Found,
    /// Buckets are published that were not there when the list was walked: it is to be walked again.
    Outgrown,
    /// Records changed, or could not be read, each time.
    Missed,
}

/// Which records, and who publishes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Published {
    /// Their list.
    pub(super) list: List,
    /// Its first bucket before it was walked.
    pub(super) first: u64,
    /// What a record has.
    pub(super) shape: Cycle,
    /// The lock that is held meanwhile, where it was found: without it, no moment can be told.
    pub(super) lock: Option<u64>,
}

impl Published {
    /// Reads `records` again until they are of one moment, if there is `work` left.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub(super) fn settle(
        self,
        memory: &impl Memory,
        code: &impl Code,
        records: &mut [Record],
        work: &Work,
    ) -> Result<Moment, Fault> {
        // Without it, nothing says that nobody is halfway through.
        let Some(lock) = self.lock else { return Ok(Moment::Missed) };
        let measured = Metered::new(memory, work);
        for _ in 0..READINGS {
            let is_free = measured.word(lock)? == Some(0);
            let Some(changed) = self.read_again(&measured, records)? else { return Ok(Moment::Missed) };
            let is_outgrown = self.is_outgrown(memory, code, work)?;
            if work.is_spent() {
                return Ok(Moment::Missed);
            }
            if is_outgrown {
                return Ok(Moment::Outgrown);
            }
            if is_free && changed == 0 {
                return Ok(Moment::Found);
            }
        }
        Ok(Moment::Missed)
    }

    /// Whether any of `records` is published, or cannot be read any more. What is published stays so: if none is, none was before. One reading of each.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub(super) fn has_any<M: Memory>(self, memory: &M, records: &[Record], work: &Work) -> Result<bool, Fault> {
        let memory = &Metered::new(memory, work);
        let (mut pages, mut bytes) = (Pages::new(memory), vec![0; self.shape.size()]);
        for record in records {
            if !pages.fill(published_at(record), &mut bytes)? || bytes.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many records are not what they were, and are what they are now; none where one cannot be read any more.
    fn read_again<M: Memory>(self, memory: &M, records: &mut [Record]) -> Result<Option<u64>, Fault> {
        let (mut pages, mut changed) = (Pages::new(memory), 0);
        let mut bytes = vec![0; self.shape.size()];
        for record in records {
            if !pages.fill(published_at(record), &mut bytes)? {
                return Ok(None);
            }
            let counts = Counts::of(self.shape, record.size, &bytes);
            let now = counts.allocated(record.size).zip(counts.in_use(record.size));
            let is_same = now == Some((record.allocated, record.in_use)) && !counts.is_torn(record.size);
            changed += u64::from(!is_same);
            if let Some(now) = now {
                (record.allocated, record.in_use) = now;
            }
        }
        Ok(Some(changed))
    }

    /// Whether one of the buckets before what was the first one is published, or may be.
    fn is_outgrown(self, memory: &impl Memory, code: &impl Code, work: &Work) -> Result<bool, Fault> {
        let mut is_published = false;
        let new = List { end: self.first, most: NEW, ..self.list };
        let walk = new.walk(memory, code, work, |bucket| {
            is_published |= Counts::of(self.shape, bucket.size, &bucket.record) != Counts::default();
            true
        })?;
        Ok(is_published || walk.beyond > 0)
    }
}

/// Where a bucket has what is published of it: behind its head and its stack.
fn published_at(record: &Record) -> u64 {
    record.at.wrapping_add((bucket::HEADER + 8 * record.stack.len()) as u64)
}
