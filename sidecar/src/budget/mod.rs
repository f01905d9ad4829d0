//! The sidecar's own CPU and memory, kept within bounds by itself.
