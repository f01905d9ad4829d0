// Goroutines that cost as much as can be to look at: forges STATUS ID SCHED COUNT (offsets in g) forges, in the form of Go 1.24 on amd64, a list of COUNT
// parked goroutines, all on one stack of sixteen megabytes on which each word is the return address of a call in a function with a frame of eight
// kilobytes: a walk of it goes on as far as it may, and finds nothing where it was before. It says "ready"; to "where" the address of the list.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

const stack, g = 16 << 20, 512

var pcs [1]uintptr

func put(at uintptr, words ...uint64) {
	for i, value := range words {
		at := at + 8*uintptr(i)
		*(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) = value
	}
}

//go:noinline
func here(room []byte) int { return runtime.Callers(2, pcs[:]) + len(room) }

//go:noinline
func wide() int {
	var room [8192]byte
	for i := range room {
		room[i] = byte(i)
	}
	return here(room[:]) + int(room[here(nil)])
}

func mapped(length uintptr) uintptr {
	at, _, err := syscall.Syscall6(syscall.SYS_MMAP, 0, length, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	if err != 0 {
		panic(err)
	}
	return at
}

func main() {
	var numbers [4]uintptr
	for i := range numbers {
		value, _ := strconv.Atoi(os.Args[1+i])
		numbers[i] = uintptr(value)
	}
	status, id, sched, count := numbers[0], numbers[1], numbers[2], numbers[3]
	wide()
	lo, list, gs := mapped(stack), mapped(24+8*count), mapped(g*count)
	for at := lo; at < lo+stack; at += 8 {
		put(at, uint64(pcs[0]))
	}
	put(list, uint64(list+24), uint64(count), uint64(count))
	for i := uintptr(0); i < count; i++ {
		at := gs + g*i
		put(at, uint64(lo), uint64(lo+stack))
		put(at+sched, uint64(lo), uint64(pcs[0]))
		put(at+status, 4)
		put(at+id, uint64(i+1))
		put(list+24+8*i, uint64(at))
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(list)
	}
}
