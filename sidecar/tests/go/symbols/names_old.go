//go:build !go1.21

package main

import "runtime"

func symbolName(frame *runtime.Frame) string { return frame.Function }
