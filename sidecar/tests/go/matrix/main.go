// A program of which everything is known that a profile says: how much time it used, in which functions, under which labels, how deep; and what its
// own profiler saw of it.
//
// matrix FILE MILLISECONDS: works for some time of CPU without labels, then so long under labels, half of it in each of two goroutines:
// three parts in `heavy`, one in `light`, a little at the bottom of 100 and of 500 calls of `deep`, and, where it has C, in C. Writes its own profile of this
// to FILE, and prints "spent LABEL NANOSECONDS" for each label, "began NANOSECONDS" and "used NANOSECONDS": what the process had used of CPU time when
// it began, and at its end.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// CPU time before anything is labelled: whoever profiles it from outside has found it by then.
const before = 500 * time.Millisecond

var (
	mutex sync.Mutex
	sink  uint64
	spent = map[string]time.Duration{}
	other func(int) uint64
)

func main() {
	// The clock of a process goes on through exec: what it used before was another program's.
	began := used()
	milliseconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	for used() < before {
		sink += unlabelled(100_000)
	}
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		panic(err)
	}
	until := before + time.Duration(milliseconds)*time.Millisecond
	var both sync.WaitGroup
	for g := 0; g < 2; g++ {
		both.Add(1)
		go func(g int) {
			defer both.Done()
			work(strconv.Itoa(g), until)
		}(g)
	}
	both.Wait()
	pprof.StopCPUProfile()
	if err := os.WriteFile(os.Args[1], profile.Bytes(), 0o600); err != nil {
		panic(err)
	}
	for endpoint, time := range spent {
		fmt.Println("spent", endpoint, time.Nanoseconds())
	}
	fmt.Println("began", began.Nanoseconds())
	fmt.Println("used", used().Nanoseconds())
}

func work(worker string, until time.Duration) {
	runtime.LockOSThread()
	for used() < until {
		under("/heavy", worker, func() uint64 { return heavy(3_000_000) })
		under("/light", worker, func() uint64 { return light(1_000_000) })
		under("/deep", worker, func() uint64 { return deep(100) + deep(500) })
		if other != nil {
			under("/c", worker, func() uint64 { return other(1_000_000) })
		}
	}
}

//go:noinline
func under(endpoint, worker string, f func() uint64) {
	pprof.Do(context.Background(), pprof.Labels("endpoint", endpoint, "worker", worker), func(context.Context) {
		began := usedBy(thread)
		result := f()
		keep(endpoint, usedBy(thread)-began, result)
	})
}

func mix(x uint64) uint64 { return scramble(x ^ x>>7) }

func scramble(x uint64) uint64 { return x * 0x9E3779B97F4A7C15 }

//go:noinline
func heavy(n int) uint64 {
	x := uint64(n)
	for i := 0; i < n; i++ {
		x = mix(x)
	}
	return x
}

//go:noinline
func light(n int) uint64 {
	x := uint64(n)
	for i := 0; i < n; i++ {
		x = mix(x)
	}
	return x
}

//go:noinline
func unlabelled(n int) uint64 {
	x := uint64(n)
	for i := 0; i < n; i++ {
		x = mix(x)
	}
	return x
}

//go:noinline
func leaf(a, b uint64) uint64 { return a*31 ^ b>>3 }

// deep is busy at its bottom, in calls of a function without a frame.
//
//go:noinline
func deep(n int) uint64 {
	if n > 1 {
		return deep(n-1) + 1
	}
	x := uint64(1)
	for i := uint64(0); i < 100_000; i++ {
		x = leaf(x, i)
	}
	return x
}

func keep(endpoint string, time time.Duration, result uint64) {
	mutex.Lock()
	sink += result
	spent[endpoint] += time
	mutex.Unlock()
}

// Whose time: clock_gettime(2), whose clocks are exact; getrusage(2) says a thread's as of the last tick.
const (
	process = 2
	thread  = 3
)

// used is the CPU time that the process has had.
func used() time.Duration { return usedBy(process) }

func usedBy(clock uintptr) time.Duration {
	var now syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(now.Nano())
}
