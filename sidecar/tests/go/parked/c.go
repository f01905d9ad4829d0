// The part of parked that is in C: with it, the program is linked by the system's linker, and its threads begin there. Left out where CGO_ENABLED is 0.
package main

// int answer(void) { return 42; }
import "C"

func init() {
	if C.answer() != 42 {
		panic("C is broken")
	}
}
