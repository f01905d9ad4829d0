// A Go program that is busy all the time, at a known depth, under known labels, and says how much it got done.
//
// steady GOROUTINES FRAMES LABELS PARKED STACKS: each goroutine works at the bottom of a stack of FRAMES frames, under LABELS labels, until
// standard input ends; PARKED others wait, and STACKS stacks, a power of two, have allocated once. For each line on its input it prints
// "work UNITS cpu NANOSECONDS": what those that work have done since it began, and the CPU time of their threads for it, exactly. "ready" comes first.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

// Frames that are below `down`: the goroutine's function, pprof.Do, its closure; and `unit` above.
const others = 4

// Units between two looks at the clock, which is a call into the kernel: a millisecond.
const atOnce = 10

var (
	all     work
	kept    [][]byte
	nothing chan int
)

// work is what was done, and the CPU time that it took.
type work struct {
	sync.Mutex
	units, nanos int64
}

func main() {
	goroutines, frames, labels, parked, stacks := number(1), number(2), number(3), number(4), number(5)
	usual := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	for stack := 0; stack < stacks; stack++ {
		left(stack, stacks)
	}
	runtime.MemProfileRate = usual
	for g := 0; g < parked; g++ {
		go func() { <-nothing }()
	}
	runtime.GC()
	for g := 0; g < goroutines; g++ {
		go busy(frames, labels)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		all.Lock()
		units, nanos := all.units, all.nanos
		all.Unlock()
		fmt.Println("work", units, "cpu", nanos)
	}
	// Without it the linker leaves the profile of the heap out.
	pprof.Lookup("heap").WriteTo(io.Discard, 0)
}

func number(index int) int {
	value, err := strconv.Atoi(os.Args[index])
	if err != nil {
		panic(err)
	}
	return value
}

// left and right call each other by the bits of a stack's number, so that each number has a stack of its own.
//
//go:noinline
func left(bits, rest int) { next(bits, rest) }

//go:noinline
func right(bits, rest int) { next(bits, rest) }

func next(bits, rest int) {
	switch {
	case rest <= 1:
		kept = append(kept, make([]byte, 64))
	case bits&1 == 0:
		left(bits>>1, rest>>1)
	default:
		right(bits>>1, rest>>1)
	}
}

func busy(frames, labels int) {
	runtime.LockOSThread()
	var pairs []string
	for i := 0; i < labels; i++ {
		pairs = append(pairs, fmt.Sprintf("label-%d", i), fmt.Sprintf("value-%d", i))
	}
	pprof.Do(context.Background(), pprof.Labels(pairs...), func(context.Context) { down(frames - others) })
}

//go:noinline
func down(n int) uint64 {
	if n > 1 {
		return down(n-1) + 1
	}
	for before := cpu(); ; {
		for i := 0; i < atOnce; i++ {
			if unit() == 0 {
				return 0
			}
		}
		now := cpu()
		all.Lock()
		all.units += atOnce
		all.nanos += now - before
		all.Unlock()
		before = now
	}
}

// unit is some 100 microseconds of arithmetic, with no memory, so that nothing but the processor decides how long it takes.
//
//go:noinline
func unit() uint64 {
	x := uint64(1)
	for i := 0; i < 100000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x | 1
}

// cpu is the CPU time that this thread has used, in nanoseconds: CLOCK_THREAD_CPUTIME_ID of clock_gettime(2). That of a process knows what its other threads have
// used only as of their last ticks.
func cpu() int64 {
	var now syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&now)), 0); err != 0 {
		panic(err)
	}
	return now.Nano()
}
