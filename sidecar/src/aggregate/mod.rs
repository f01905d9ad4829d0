//! Equal samples of a window as one.
