// The part of parked that is in C: with it, the program is linked by the system's linker, and its threads begin there. Left out where CGO_ENABLED is 0.
package main

// extern void goWaits(void);
// static int answer(void) { return 42; }
// static void callBack(void) { goWaits(); }
import "C"

//export goWaits
func goWaits() { <-nothing }

func init() {
	if C.answer() != 42 {
		panic("C is broken")
	}
	inC = append(inC, func() { C.callBack() })
}
