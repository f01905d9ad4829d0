//! A process from outside: its memory, its mappings, its files.
