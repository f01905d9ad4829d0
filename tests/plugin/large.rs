//! The same plugin with more thread-local memory than the dynamic linker keeps in reserve for libraries that come late:
//! it puts this plugin's thread-locals anywhere, where a thread's first touch allocates.
//!
//! In and out: as `lib.rs`.

use std::cell::Cell;

#[path = "lib.rs"]
pub mod plugin;

thread_local! {
    static LARGE: [Cell<u8>; 1 << 16] = const { [const { Cell::new(0) }; 1 << 16] };
}

/// Touches the memory, so that it is not left out.
// SAFETY: no other symbol of this name is in the hosts of the tests.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_touch(index: u16) -> u8 {
    plugin::plugin_taken();
    LARGE.with(|large| large[usize::from(index)].replace(1))
}
