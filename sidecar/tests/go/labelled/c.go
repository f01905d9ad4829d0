//go:build withc

package main

// A thread-local of C stands beside that of Go, so that the latter is not where it is in programs without C.

/*
static __thread volatile long own[5];
static long touch(long x) { own[x % 5] += x; return own[0]; }
*/
import "C"

func init() { C.touch(3) }
