//! Real Go programs against what their own runtime says of itself.
