//! Heap sampling: jemalloc's hooks in, what was allocated and what lives out.
//!
//! In: settings, and the hooks that jemalloc calls for one allocation in so many bytes. Out: a [`HeapWindow`] for whoever asks. In
//! the order of a sample: `setup` finds the allocator, `hooks` are called and find `scratches`, `capture` takes stack, tags and span without
//! the frames of the allocator (`frames`), `sites` numbers them (`shard`), `eras` knows the modules that they are in, `live` keeps the block until it is freed (`chains` find its place among the `entries`), all in `array`s, `window`
//! copies both. `state` holds it all together, `sampler` starts and stops it, at a `pace` that the program can afford. Without the feature `heap`, `elsewhere` says so.
//! A jemalloc without hooks has its own profile `dump`ed, of which `reading` makes such a window; `dumps` starts and stops that. `either` is what the
//! rest of the crate knows. docs/design/0010-heap.md says why.

// What samples: with the feature, on the systems that `cpu` needs.
macro_rules! where_it_samples {
    ($($item:item)*) => {
        $(#[cfg(all(feature = "heap", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))] $item)*
    };
}

where_it_samples! {
    mod array;
    mod block;
    mod calls;
    mod capture;
    mod chains;
    mod control;
    mod dump;
    mod dumps;
    mod either;
    mod entries;
    mod eras;
    mod figures;
    mod frames;
    mod hooks;
    mod inherited;
    mod jemalloc;
    mod live;
    mod others;
    mod pace;
    mod reading;
    mod sampler;
    mod scratches;
    mod setup;
    mod shard;
    mod sites;
    mod state;
    mod weight;
    use crate::cpu::atomic;
    mod window;
    pub(crate) use self::either::{Heap, leave_out_this_thread};
    pub(crate) use self::weight::PARTS;
    #[cfg(test)]
    pub(crate) use self::weight::Weight;
    pub(crate) use self::window::{HeapWindow, Mark, Row, Since, Site};

    /// From now on there is no memory for what the hooks keep, or there is again: for tests of what is lost then.
    #[doc(hidden)]
    pub fn refuse_memory(refuses: bool) {
        array::refuse_memory(refuses);
    }
}
#[cfg(all(not(feature = "heap"), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod elsewhere;
#[cfg(feature = "heap")]
mod macros;
mod settings;

#[cfg(all(not(feature = "heap"), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::elsewhere::{Heap, HeapWindow, Mark, Since, leave_out_this_thread};
#[cfg(all(feature = "heap", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use self::macros::Options;
pub(crate) use self::settings::HeapSettings;
