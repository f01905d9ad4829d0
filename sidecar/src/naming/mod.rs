//! From addresses of a process to functions: Go's tables, ELF symbols, the kernel's.
