//! The page in a real browser, served by the real server.
//!
//! [`site`] is a server whose store a test fills; [`reader`] opens its page and asks it what it shows. Every test ends
//! with [`reader::Reader::leave`]: the page must have complained of nothing and asked nobody but its own server.

mod address;
mod colours;
mod graph;
mod quality;
mod reader;
mod refresh;
mod site;
mod size;
mod table;
