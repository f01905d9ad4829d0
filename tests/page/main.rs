//! The page in a real browser, served by the real server.
//!
//! [`site`] is a server whose store a test fills; [`reader`] opens its page and asks it what it shows. Every test ends
//! with [`reader::Reader::leave`]: the page must have complained of nothing and asked nobody but its own server.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it must be, and says how long things took"
)]

mod address;
mod colours;
mod drawing;
mod graph;
mod heap;
mod names;
mod processes;
mod quality;
mod reader;
mod refresh;
mod site;
mod size;
mod table;
mod troubles;
