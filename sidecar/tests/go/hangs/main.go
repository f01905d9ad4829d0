// A program whose list of goroutines lies in a file: hangs FILE maps it, and points runtime.allgs there. Its garbage is never collected, for which the list is needed. It
// says "ready", and ends at the end of its input.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"unsafe"
)

//go:linkname allgs runtime.allgs
var allgs []unsafe.Pointer

func main() {
	debug.SetGCPercent(-1)
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	const length = 1 << 20
	at, _, failed := syscall.Syscall6(syscall.SYS_MMAP, 0, length, syscall.PROT_READ, syscall.MAP_SHARED, file.Fd(), 0)
	if failed != 0 {
		panic(failed)
	}
	allgs = unsafe.Slice((*unsafe.Pointer)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), length/8)
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
