//! The kernel side on the kernel that runs here, with real programs. Needs root; as another user it says what was not run.

mod events;
mod goroutines;
mod native;
mod programs;
mod recorder;
