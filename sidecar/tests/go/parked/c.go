package main

// int answer(void) { return 42; }
import "C"

// With C in it, the program is linked by the system's linker, and its threads begin there. Left out where CGO_ENABLED is 0.
func init() {
	if C.answer() != 42 {
		panic("C is broken")
	}
}
