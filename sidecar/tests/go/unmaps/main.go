// Memory that comes and goes: unmaps STATUS ID SCHED (offsets in g) forges, in the form of Go 1.24 on amd64, a list of BUCKETS heap buckets and GOROUTINES parked
// goroutines in a region of its own. It says "ready"; to "where" the address of what stands still: the head of the buckets, 64 bytes behind it the
// rate, 128 the list of goroutines. From the line "go" on the region, or its second half, is unmapped and made anew without end.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	buckets, bucket    = 500, 256
	goroutines, g      = 256, 512
	stack              = 1024
	list               = buckets * bucket
	gs                 = list + 8*goroutines
	stacks             = gs + g*goroutines
	size               = (stacks + stack*goroutines + 8191) &^ 8191
	fixed, noreplace   = 0x10, 0x100000
	readwrite, private = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_PRIVATE | syscall.MAP_ANON
)

var (
	status, id, sched uintptr
	pcs               [4]uintptr
)

func word(at uintptr) *uint64 { return (*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) }

func put(at uintptr, words ...uint64) {
	for i, value := range words {
		*word(at + 8*uintptr(i)) = value
	}
}

//go:noinline
func here(depth int) int {
	if depth > 0 {
		return here(depth-1) + 1
	}
	return runtime.Callers(1, pcs[:])
}

// fill writes all there is; what makes a bucket or a goroutine one is written last.
func fill(region uintptr) {
	for i := uintptr(0); i < buckets; i++ {
		at, next := region+bucket*i, uint64(region+bucket*(i+1))
		if i == buckets-1 {
			next = 0
		}
		put(at, 0, next, 0, 0, 64, 4)
		put(at+48, uint64(pcs[0]), uint64(pcs[1]), uint64(pcs[1]), uint64(pcs[2]), 4, 1, 256, 64)
		atomic.StoreUint64(word(at+16), 1)
	}
	for i := uintptr(0); i < goroutines; i++ {
		at, lo := region+gs+g*i, region+stacks+stack*i
		put(at, uint64(lo), uint64(lo+stack))
		put(at+sched, uint64(lo), uint64(pcs[0]))
		put(at+id, uint64(i+1))
		*word(region + list + 8*i) = uint64(at)
		atomic.StoreUint64(word(at+status), 4)
	}
}

func mapped(at, length, flags uintptr) uintptr {
	got, _, err := syscall.Syscall6(syscall.SYS_MMAP, at, length, readwrite, private|flags, ^uintptr(0), 0)
	if err != 0 {
		panic(err)
	}
	return got
}

func comeAndGo(region uintptr) {
	for round := 0; ; round++ {
		from := uintptr(size / 2 * (round % 2))
		syscall.Syscall(syscall.SYS_MUNMAP, region+from, size-from, 0)
		time.Sleep(time.Duration(round%7) * 100 * time.Microsecond)
		mapped(region+from, size-from, fixed|noreplace)
		fill(region)
		time.Sleep(time.Duration(round%11) * 300 * time.Microsecond)
	}
}

func main() {
	debug.SetGCPercent(-1)
	for i, into := range []*uintptr{&status, &id, &sched} {
		value, _ := strconv.Atoi(os.Args[1+i])
		*into = uintptr(value)
	}
	here(2)
	// Below what the kernel and the runtime choose of themselves: while there is nothing, nobody else takes its place.
	still, region := mapped(0, 4096, 0), mapped(1<<37, size, fixed|noreplace)
	fill(region)
	put(still, uint64(region))
	put(still+64, 512)
	put(still+128, uint64(region+list), goroutines, goroutines)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "where":
			fmt.Println(still)
		case "go":
			go comeAndGo(region)
			fmt.Println("goes")
		}
	}
}
