//! What a Go runtime keeps in its memory: heap, goroutines, block and mutex, read from outside.

mod buckets;
mod contention;
mod goroutines;
mod heap;
mod labels;
mod memory;
mod operands;
mod stack;
mod ticks;
mod variables;

pub use buckets::Walk;
pub use contention::{Contention, contention};
pub use goroutines::{Goroutine, Goroutines, goroutines};
pub use heap::{Amount, Heap, heap};
pub use memory::Memory;
pub use operands::operands;
pub use variables::{Code, Function, Variables};
