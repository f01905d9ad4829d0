// A service of which everything is known that a profile says: how much CPU time it used, in which functions, under which labels, for which spans.
//
// Prints "span ENDPOINT TRACE SPAN" for each span, and "ready". Works for some CPU time without labels, then under labels in two goroutines: three
// parts in `heavy`, one in `light`, in turns of lengths that are drawn, each for one of its endpoint's spans. Answers each line on its standard input with the
// line and the CPU time that the process has used; "end" with "spent ENDPOINT NANOSECONDS" for each endpoint, "began NANOSECONDS" and "used NANOSECONDS", what
// the process had used when it began and when its work ended, and "ended". Ends when its standard input does.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// CPU time before anything is labelled: whoever profiles it from outside has found it by then.
const before = 500 * time.Millisecond

// Spans of each endpoint.
const spans = 4

// The label of this name says which it was of the CPU time of the process when the turn began.
const tenth = 100 * time.Millisecond

var (
	sink  uint64
	mutex sync.Mutex
	spent = map[string]time.Duration{}
	over  atomic.Bool
)

// What there is to do: a function, for spans.
type endpoint struct {
	name  string
	work  func(int) uint64
	parts int
	spans [spans][2]string
}

func main() {
	// The clock of a process goes on through exec: what it used before was another program's.
	began := used()
	endpoints := []endpoint{{name: "/heavy", work: heavy, parts: 3}, {name: "/light", work: light, parts: 1}}
	for at := range endpoints {
		for span := range endpoints[at].spans {
			endpoints[at].spans[span] = [2]string{drawn(16), drawn(8)}
			fmt.Println("span", endpoints[at].name, endpoints[at].spans[span][0], endpoints[at].spans[span][1])
		}
	}
	fmt.Println("ready")
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		for used()-began < before {
			sink += unlabelled(100_000)
		}
		for worker := 0; worker < 2; worker++ {
			ended.Add(1)
			go func(worker int) {
				defer ended.Done()
				work(strconv.Itoa(worker), endpoints)
			}(worker)
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() != "end" {
			fmt.Println(lines.Text(), used().Nanoseconds())
			continue
		}
		over.Store(true)
		ended.Wait()
		for endpoint, time := range spent {
			fmt.Println("spent", endpoint, time.Nanoseconds())
		}
		fmt.Println("began", began.Nanoseconds())
		fmt.Println("used", used().Nanoseconds())
		fmt.Println("ended")
	}
}

func drawn(bytes int) string {
	drawn := make([]byte, bytes)
	if _, err := rand.Read(drawn); err != nil {
		panic(err)
	}
	return hex.EncodeToString(drawn)
}

func work(worker string, endpoints []endpoint) {
	runtime.LockOSThread()
	for !over.Load() {
		turn := 100_000 + mathrand.Intn(200_000)
		for _, endpoint := range endpoints {
			span := endpoint.spans[mathrand.Intn(spans)]
			tenth := strconv.FormatInt(int64(used()/tenth), 10)
			labels := pprof.Labels("endpoint", endpoint.name, "worker", worker, "tenth", tenth, "trace_id", span[0], "span_id", span[1])
			pprof.Do(context.Background(), labels, func(context.Context) {
				began := usedBy(thread)
				result := endpoint.work(endpoint.parts * turn)
				keep(endpoint.name, usedBy(thread)-began, result)
			})
		}
	}
}

// Several products, each of which needs the one before: an interrupt comes between any two of them.
func mix(x uint64) uint64 {
	x = (x ^ (x >> 7)) * 0x9E3779B97F4A7C15
	x = (x ^ (x >> 11)) * 0xBF58476D1CE4E5B9
	return (x ^ (x >> 17)) * 0xD6E8FEB86659FD93
}

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
