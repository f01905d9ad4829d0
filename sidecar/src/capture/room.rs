//! Room that many share: each takes as much of it as it keeps, and gives it back when that goes.
//!
//! In: how much there is for all. Out: parts of it, as long as there is any. From any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What nobody has taken, in bytes. Clones are the same room.
#[derive(Debug, Clone)]
pub struct Room(Arc<AtomicUsize>);

/// A part of a room, as long as this is.
#[derive(Debug)]
pub struct Taken {
    room: Room,
    bytes: usize,
}

impl Room {
    /// Of so many bytes.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// So many bytes of it, if there are as many.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Taken> {
        // Nothing but the number is shared.
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Taken { room: self.clone(), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
