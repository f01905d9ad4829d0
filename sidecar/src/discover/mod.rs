//! Which processes there are, what they are, whose pod, what is left out.
