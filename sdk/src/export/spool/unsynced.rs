//! What the disk has not confirmed: which segments are to be synced, and up to which record everything is.
//!
//! In: segments as they are begun and written to, what syncing them came to. Out: the next one to sync, the number below which everything is
//! confirmed. Pure: the folder does the syncing.

/// What the disk has not confirmed.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// Segments with records that are not confirmed.
    segments: Vec<u64>,
    /// A segment is new, and the folder may not know it after a power cut.
    created: bool,
    /// A segment that the disk failed to confirm. Asked again it may say yes, though what it dropped stays lost.
    failed: Option<u64>,
    /// All records with smaller numbers are confirmed.
    below: u64,
}

impl Unsynced {
    /// A segment was made.
    pub(super) fn begun(&mut self) {
        self.created = true;
    }

    /// Segment `first` was written to.
    pub(super) fn wrote(&mut self, first: u64) {
        if !self.segments.contains(&first) {
            self.segments.push(first);
        }
    }

    /// A segment that is to be synced; what comes of it is said only where that fails.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.segments.pop()
    }

    /// Segment `first` could not be synced: nothing from there on is confirmed while it is there.
    pub(super) fn failed(&mut self, first: u64) {
        self.failed = self.failed.max(Some(first));
    }

    /// Whether the names in the folder are to be synced.
    pub(super) fn has_new_names(&self) -> bool {
        self.created
    }

    /// They are, and all that was to be synced. The number below which everything is confirmed, where the next record is `next`, and the segments
    /// that `is_there` knows are.
    pub(super) fn synced(&mut self, next: u64, is_there: impl Fn(u64) -> bool) -> u64 {
        self.created = false;
        if !self.failed.is_some_and(is_there) {
            (self.failed, self.below) = (None, next);
        }
        self.below
    }
}
