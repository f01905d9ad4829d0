//! Flame graphs as one file of SVG, for tickets and mails: root at the bottom, width by weight, name and share under the pointer. A click
//! zooms in, and names can be searched: what it takes stands in the file.
//!
//! In: paths of names with weights, or a profile. Out: the text of the file, the same for the same input. Pure. What is narrower than a third of a
//! pixel is left out, and what is more than can be looked at; whatever stands in names, the file is well-formed and nothing in it runs.
//!
//! The way: [`Graph`] (who calls whom) → `layout` (boxes) → [`draw`] (text).

mod amount;
mod draw;
mod graph;
mod layout;

pub use draw::draw;
pub use graph::Graph;
