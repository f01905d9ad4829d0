//! The working memory of the signal handlers: what one needs for one sample, made beforehand.
//!
//! In: a number. Out: a [`Pool`] of so many. Made by `start`, used in the handlers, never freed.

use super::pool::{self, Pool};
use super::stack::Stack;
use crate::context::TAG_WORDS;
use crate::error::Error;
use crate::unwind::frames::Frames;
use crate::unwind::memory::Window;
use crate::unwind::rules::Cache;

/// What a handler works with; about 56 KiB, once it is used, a spare one 16.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) cache: Cache,
    pub(crate) frames: Frames,
    pub(crate) window: Window,
    pub(crate) stack: Stack,
    pub(crate) tags: [u64; TAG_WORDS],
}

/// A scratch that is held.
pub(crate) type Held<'a> = pool::Held<'a, Work>;

/// Scratches for handlers that the kernel does not let end for a while: it may take the processor from any number of
/// threads while their handlers run, and does so most when many threads take their first sample, which is the slowest.
const SPARE: usize = 24;

/// A pool for handlers on so many processors.
///
/// # Errors
/// When there is no memory for their stacks.
pub(crate) fn pool(processors: usize) -> Result<Pool<Work>, Error> {
    let by_hint = (2 * processors).clamp(8, 64);
    let work = |number| {
        let cache = if number < by_hint { Cache::new() } else { Cache::small() };
        let (frames, window) = (Frames::new(), Window::new());
        Ok(Work { cache, frames, window, stack: Stack::map(1)?.remove(0), tags: [0; TAG_WORDS] })
    };
    Ok(Pool::new((0..by_hint + SPARE).map(work).collect::<Result<Vec<_>, Error>>()?, by_hint))
}
