// A program of which everything is known that a profile says: how much time it used, in which functions, under which labels, how deep; and what its
// own profiler saw of it.
//
// matrix FILE MILLISECONDS WORKERS: after a line on its input, works for some time of CPU without labels, then so long under labels, in so many goroutines:
// three parts in `heavy`, one in `light`, a little at the bottom of 100 and of 500 calls of `deep`, and, where it has C, in C. Writes its own profile of this
// to FILE, and prints "spent LABEL WORKER NANOSECONDS" for each label, "began NANOSECONDS" and "used NANOSECONDS", what the process had used of CPU time when
// it began, and at its end, "took NANOSECONDS" and "stolen NANOSECONDS", how long that was, and how long the hypervisor had its processors meanwhile, "pid PID",
// and "main ADDRESS", where the function is.
//
// matrix -places ADDRESS: says of addresses of a process, in which main was there, what the runtime says of them (package oracle).
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"matrix/oracle"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// CPU time before anything is labelled: whoever profiles it from outside has found it by then, where nothing is optimized and others keep the machine busy, too.
const before = time.Second

var (
	mutex sync.Mutex
	sink  uint64
	spent = map[[2]string]time.Duration{}
	other func(int) uint64
)

func main() {
	if os.Args[1] == "-places" {
		there, err := strconv.ParseUint(os.Args[2], 16, 64)
		check(err)
		oracle.Answer(main, uintptr(there), os.Stdin, os.Stdout)
		return
	}
	bufio.NewReader(os.Stdin).ReadString('\n')
	began, took, taken := used(), time.Now(), stolen()
	milliseconds, err := strconv.Atoi(os.Args[2])
	check(err)
	workers, err := strconv.Atoi(os.Args[3])
	check(err)
	for used() < began+before {
		sink += unlabelled(100_000)
	}
	var profile bytes.Buffer
	check(pprof.StartCPUProfile(&profile))
	until := began + before + time.Duration(milliseconds)*time.Millisecond
	var all sync.WaitGroup
	for g := 0; g < workers; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			work(strconv.Itoa(g), until)
		}(g)
	}
	all.Wait()
	pprof.StopCPUProfile()
	check(os.WriteFile(os.Args[1], profile.Bytes(), 0o600))
	for labels, time := range spent {
		fmt.Println("spent", labels[0], labels[1], time.Nanoseconds())
	}
	fmt.Println("pid", os.Getpid())
	fmt.Printf("main %x\n", oracle.Here(main))
	fmt.Println("stolen", (stolen() - taken).Nanoseconds())
	fmt.Println("took", time.Since(took).Nanoseconds())
	fmt.Println("began", began.Nanoseconds())
	fmt.Println("used", used().Nanoseconds())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// stolen is the time that the hypervisor has taken from the processors that this may run on: the eighth number of each in /proc/stat (proc(5)), in hundredths of
// a second.
func stolen() time.Duration {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	_, after, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(after, "\n")
	stat, err := os.ReadFile("/proc/stat")
	check(err)
	var all time.Duration
	for _, processors := range strings.Split(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(processors, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		check(err)
		to, err := strconv.Atoi(last)
		check(err)
		for number := from; number <= to; number++ {
			_, line, _ := strings.Cut(string(stat), fmt.Sprintf("\ncpu%d ", number))
			ticks, err := strconv.Atoi(strings.Fields(line)[7])
			check(err)
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return all
}

func work(worker string, until time.Duration) {
	runtime.LockOSThread()
	// Each at least once: of many, the last may come when the time is over.
	for first := true; first || used() < until; first = false {
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
		keep([2]string{endpoint, worker}, usedBy(thread)-began, result)
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
	for i := uint64(0); i < 300_000; i++ {
		x = leaf(x, i)
	}
	return x
}

func keep(labels [2]string, time time.Duration, result uint64) {
	mutex.Lock()
	sink += result
	spent[labels] += time
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
