//! Sends profiles to where they are kept: queue, batch, compress, retry.
