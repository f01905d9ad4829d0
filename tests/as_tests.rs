//! Does nothing: where cargo is asked for it beside a program, that one stands on what tests of the workspace stand on, for an example has their dependencies.

fn main() {}
