// A Go program that is busy all the time, at a known depth, under known labels, and says how much it got done.
//
// steady GOROUTINES FRAMES LABELS: each goroutine works at the bottom of a stack of FRAMES frames, under LABELS labels, until standard input
// ends. For each line on its input it prints "work UNITS cpu NANOSECONDS": what was done and used since it began. "ready" comes first.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Frames that are below `down`: the goroutine's function, pprof.Do, its closure; and `unit` above.
const others = 4

var done atomic.Int64

func main() {
	goroutines, frames, labels := number(1), number(2), number(3)
	for g := 0; g < goroutines; g++ {
		go work(frames, labels)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		units := done.Load()
		fmt.Println("work", units, "cpu", cpu())
	}
}

func number(index int) int {
	value, err := strconv.Atoi(os.Args[index])
	if err != nil {
		panic(err)
	}
	return value
}

func work(frames, labels int) {
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
	for {
		if unit() == 0 {
			return 0
		}
		done.Add(1)
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

// cpu is the CPU time that the process has used, in nanoseconds.
func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
