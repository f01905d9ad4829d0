// A program that is none of a profiler's business, and knows who looks at it: busy under a label whose text has a page of memory to itself, which nobody
// touches but who reads labels. Prints "ready ADDRESS", where that page is, and "opened PID" for each process that opens or reads the program's file
// (fanotify(7), which needs root). After each line on its standard input, which it answers with that line, no processor remembers that the page was touched
// before: the next touch shows in the page tables. Ends when its standard input does.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
	"unsafe"
)

var sink uint64

//go:noinline
func strange(n uint64) uint64 {
	x := n
	for i := uint64(0); i < n; i++ {
		x = (x ^ (x >> 7)) * 0x9E3779B97F4A7C15
	}
	return x
}

func main() {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(err)
	label := unsafe.String(&page[0], copy(page, "the-stranger's"))
	// A mapping of its own, for its neighbours can be written to.
	must(syscall.Mprotect(page, syscall.PROT_READ))
	go tell(watch())
	go pprof.Do(context.Background(), pprof.Labels("whose", label), func(context.Context) {
		for {
			sink += strange(100_000)
		}
	})
	fmt.Printf("ready %x\n", uintptr(unsafe.Pointer(&page[0])))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		// A change of what is allowed makes all processors forget the page.
		must(syscall.Mprotect(page, syscall.PROT_NONE))
		must(syscall.Mprotect(page, syscall.PROT_READ))
		fmt.Println(lines.Text())
	}
}

// watch has the kernel tell who opens or reads the program's file. Source: fanotify_init(2), fanotify_mark(2), linux/fanotify.h.
func watch() int {
	const (
		cloexec = 1
		add     = 1
		access  = 0x01
		open    = 0x20
		here    = -100 // AT_FDCWD
	)
	fd, _, no := syscall.Syscall(syscall.SYS_FANOTIFY_INIT, cloexec, syscall.O_RDONLY, 0)
	check(no)
	at, path := here, []byte("/proc/self/exe\x00")
	_, _, no = syscall.Syscall6(syscall.SYS_FANOTIFY_MARK, fd, add, access|open, uintptr(at), uintptr(unsafe.Pointer(&path[0])), 0)
	check(no)
	return int(fd)
}

// tell prints who it was, once for each.
func tell(fd int) {
	known, events := map[uint32]bool{}, make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, events)
		must(err)
		for rest := events[:n]; len(rest) > 0; rest = rest[binary.LittleEndian.Uint32(rest):] {
			file, pid := int(binary.LittleEndian.Uint32(rest[16:])), binary.LittleEndian.Uint32(rest[20:])
			must(syscall.Close(file))
			if !known[pid] {
				known[pid] = true
				fmt.Println("opened", pid)
			}
		}
	}
}

func check(no syscall.Errno) {
	if no != 0 {
		panic(no)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
