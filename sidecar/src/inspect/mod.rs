//! The commands `heap` and `goroutines`.
