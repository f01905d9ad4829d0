// Computes in C, called from Go: for so many seconds of processor time as its argument says, after the first line of its input.
package main

// #include <time.h>
// static double used(void) {
//     struct timespec now;
//     clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
//     return now.tv_sec + now.tv_nsec / 1e9;
// }
// static __attribute__((noinline)) unsigned inner_c(unsigned x) {
//     for (int i = 0; i < 100000; i++) x = x * 1664525u + 1013904223u;
//     return x;
// }
// __attribute__((noinline)) unsigned outer_c(unsigned x, double seconds) {
//     for (double end = used() + seconds; used() < end;) x = inner_c(x) + 1;
//     return x;
// }
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

//go:noinline
func callsC(seconds float64) uint32 {
	return uint32(C.outer_c(1, C.double(seconds))) + 1
}

func main() {
	bufio.NewReader(os.Stdin).ReadString('\n')
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	fmt.Println(callsC(seconds))
}
