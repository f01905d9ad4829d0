//! Forged memory.
