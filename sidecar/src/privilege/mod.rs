//! Which capabilities there are, what works with them, and how they are dropped.
