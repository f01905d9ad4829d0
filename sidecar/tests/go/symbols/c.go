//go:build cgo

package main

// static int doubled(int x) { return 2 * x; }
import "C"

func init() { sink += int(C.doubled(21)) }
