//! Libraries in single steps, made by the C compiler.
