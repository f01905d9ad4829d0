//! What a Go runtime keeps in its memory: heap, goroutines, block and mutex, read from outside.
