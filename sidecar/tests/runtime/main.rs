//! Tests with real Go programs (`tests/go`), whose runtime's memory is read from outside.

mod capture;
mod inspect;
mod layouts;
mod programs;
mod running;
mod torn;
mod variables;
