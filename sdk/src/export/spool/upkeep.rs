//! The keeper's turns: takes over a folder, has the disk confirm what was written, makes room.
//!
//! In: what earlier processes left, and how far each destination is. Out: a folder without what nobody needs, within its bound;
//! a call for each record that a destination lost for room. On the keeper's thread.

use std::time::Instant;

use super::folder::Folder;
use super::keeper::Keeper;
use super::settled::MAX_NAMES;
use super::{Gone, Why};
use crate::error::Error;

impl Keeper {
    /// Opens the folder, or tries again after a while.
    pub(super) fn open(&mut self) {
        let opened = Folder::open(&self.path, self.bounds).and_then(|folder| self.take_over(folder));
        if self.noted(opened).is_none() {
            self.due = Some(Instant::now() + self.pace.reopen);
        }
    }

    /// Takes over what is in a folder.
    fn take_over(&mut self, mut folder: Folder) -> Result<(), Error> {
        self.cursors = folder.cursors()?;
        for backlog in &mut self.backlogs {
            backlog.reset(self.cursors.settled.get(&backlog.taker.name).cloned().unwrap_or_default());
        }
        let (backlogs, mut untaken) = (&mut self.backlogs, 0);
        let unreadable = folder.survey(|header| {
            backlogs
                .iter_mut()
                .filter(|backlog| !backlog.takes(header.form, &header.counts))
                .for_each(|other| other.settle(header.number));
            untaken += u64::from(!backlogs.iter().any(|backlog| backlog.takes(header.form, &header.counts)));
        })?;
        folder.next = folder.next.max(self.cursors.next).max(self.floor);
        self.tell_missing(&folder);
        let mut before = 0;
        let backlogs = &mut self.backlogs;
        for (first, segment) in &folder.segments {
            backlogs.iter_mut().for_each(|backlog| backlog.settled.add(before..*first));
            before = segment.end;
        }
        backlogs.iter_mut().for_each(|backlog| backlog.settled.add(before..folder.next));
        let mut state = self.shared.state();
        state.figures.unreadable_bytes += unreadable;
        state.figures.untaken += untaken;
        drop(state);
        if untaken > 0 {
            tracing::warn!(
                untaken,
                "bodies in the spool are of a form or version that nobody here takes: they are lost"
            );
        }
        self.folder = Some(folder);
        self.make_room(0);
        self.later();
        Ok(())
    }

    /// Tells what had been written when how far destinations are was saved last, and is in no segment any more. Who was not a destination then
    /// has lost nothing. What was written later may be lost untold: a process that is killed leaves numbers that were never used.
    fn tell_missing(&mut self, folder: &Folder) {
        let (gaps, mut missing) = (folder.gaps(self.cursors.next), 0);
        for (destination, backlog) in self.backlogs.iter().enumerate() {
            if !self.cursors.settled.contains_key(&backlog.taker.name) {
                continue;
            }
            for numbers in gaps.iter().flat_map(|gap| backlog.settled.lacking(gap.clone())) {
                missing += numbers.end - numbers.start;
                (self.lose)(Gone { destination, numbers, counts: None, why: Why::Damaged });
            }
        }
        self.shared.state().figures.missing += missing;
        if missing > 0 {
            tracing::warn!(missing, "bodies are gone from the spool: somebody has cut or damaged its files");
        }
    }

    /// Has the disk confirm what was written, saves how far destinations are, and removes what none needs.
    pub(super) fn confirm(&mut self) {
        let Some(folder) = &mut self.folder else { return };
        let synced = folder.sync();
        if let Some(below) = self.noted(synced) {
            self.shared.state().figures.synced_below = below;
        }
        self.trim();
        let Some(folder) = &mut self.folder else { return };
        self.cursors.next = folder.next;
        if self.cursors.settled.len() > MAX_NAMES {
            self.cursors.settled.clear();
        }
        for backlog in &self.backlogs {
            self.cursors.settled.insert(backlog.taker.name.clone(), backlog.settled.clone());
        }
        let saved = folder.save(&self.cursors);
        self.noted(saved);
    }

    fn trim(&mut self) {
        while let Some((first, segment)) = self.folder.as_ref().and_then(Folder::oldest) {
            // Without a destination, what an earlier process left waits for one.
            if self.backlogs.is_empty() || !self.backlogs.iter().all(|backlog| backlog.settled.is_past(segment.end)) {
                break;
            }
            let Some(folder) = &mut self.folder else { break };
            let removed = folder.remove(first);
            if self.noted(removed).is_none() {
                break;
            }
        }
    }

    /// Makes room for a record with a body of `body` bytes; whether there is.
    pub(super) fn make_room(&mut self, body: usize) -> bool {
        while let Some((first, segment)) = self.folder.as_ref().and_then(|folder| folder.too_much(body)) {
            if !self.evict(first, segment.end) {
                return false;
            }
        }
        true
    }

    /// Takes the oldest segment out, for room.
    fn evict(&mut self, first: u64, end: u64) -> bool {
        let Some(folder) = &mut self.folder else { return false };
        let limit = folder.segments.get(&first).map_or(0, |segment| segment.readable);
        let removed = folder.remove(first);
        let Some(reader) = self.noted(removed) else { return false };
        let mut unknown = first..end;
        if let Some(mut reader) = reader {
            while let Ok(Some(header)) = reader.header(limit) {
                unknown.start = header.number + 1;
                for (destination, backlog) in self.backlogs.iter_mut().enumerate() {
                    if backlog.loses(&header) {
                        let (numbers, counts) = (header.number..unknown.start, Some(&*header.counts));
                        (self.lose)(Gone { destination, numbers, counts, why: Why::Full });
                    }
                }
            }
        }
        for (destination, backlog) in self.backlogs.iter_mut().enumerate() {
            self.shared.state().figures.missing += backlog.forget(first..end);
            // Somebody else has taken away what was in it.
            if !unknown.is_empty() {
                (self.lose)(Gone { destination, numbers: unknown.clone(), counts: None, why: Why::Damaged });
            }
        }
        true
    }
}
