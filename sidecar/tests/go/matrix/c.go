//go:build withc

package main

/*
static unsigned long spun(unsigned long n) {
    unsigned long x = n;
    for (unsigned long i = 0; i < n; i++) x = x * 6364136223846793005UL + 1442695040888963407UL;
    return x;
}
*/
import "C"

// Time in C, of which Go's tables know nothing.
//
//go:noinline
func inC(n int) uint64 { return uint64(C.spun(C.ulong(n))) }

func init() { other = inC }
