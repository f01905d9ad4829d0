//! The command `doctor`: what works here, and what is missing.
