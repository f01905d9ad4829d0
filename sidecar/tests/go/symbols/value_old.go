//go:build !go1.22

package main

import "unsafe"

//go:linkname pcvalue runtime.pcvalue
func pcvalue(f funcInfo, offset uint32, pc uintptr, cache unsafe.Pointer, strict bool) (int32, uintptr)

func value(f funcInfo, offset uint32, pc uintptr) int32 {
	value, _ := pcvalue(f, offset, pc, nil, false)
	return value
}
