//go:build go1.20

package main

import (
	"runtime"
	_ "unsafe"
)

//go:linkname startLine runtime/pprof.runtime_FrameStartLine
func startLine(frame *runtime.Frame) int
