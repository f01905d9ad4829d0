//! Files that may not grow on.
//!
//! In: nothing. Out: from then on a write beyond the limit of a file's size (`RLIMIT_FSIZE`) is an error of that write, `EFBIG`, and no end of ours by SIGXFSZ (setrlimit(2)). A
//! handler is set for that, not the signal ignored: programs that we start have the signal as it was.

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::spare;

/// Hears the signal, for good. Where too few files are left to be opened, it is as it was.
pub(crate) fn heard() {
    if spare::files("signals").is_err() {
        return;
    }
    if let Ok(runtime) = Builder::new_current_thread().enable_io().build() {
        let _inside = runtime.enter();
        // The handler stays when nobody waits for the signal any more.
        drop(signal(SignalKind::from_raw(libc::SIGXFSZ)));
    }
}
