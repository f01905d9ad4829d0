// A program whose heap, goroutines and contention are known and stand still. After the line "write FOLDER" on its standard input it collects
// garbage, writes its own profiles into the folder and says "written"; it ends at the end of its input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	kept    [][]byte
	records []*record
	nothing chan int
	pipe    []*os.File // reachable, so that no finalizer closes it
)

type record struct {
	name  [3000]byte
	other *record
}

// Inlined, into a function that is inlined itself.
func fresh(size int) []byte { return make([]byte, size) }
func keep(size int)         { kept = append(kept, fresh(size)) }

//go:noinline
func fill(n, size int) {
	for i := 0; i < n; i++ {
		keep(size)
	}
}

//go:noinline
func waste(n int) {
	for i := 0; i < n; i++ {
		sink = fresh(40000)
	}
	sink = nil
}

var sink []byte

//go:noinline
func grow(n int) {
	if n > 0 {
		grow(n - 1)
		return
	}
	for i := 0; i < 200; i++ {
		records = append(records, &record{})
	}
}

type box[T any] struct{ value T }

//go:noinline
func (b *box[T]) wait(ready *sync.WaitGroup) {
	ready.Done()
	<-nothing
}

//go:noinline
func deep(n int, ready *sync.WaitGroup) {
	if n == 0 {
		ready.Done()
		select {}
	}
	deep(n-1, ready)
}

// Inlined into what receives: a goroutine's stack with inlined calls.
func receive(c chan int) int { return <-c }

// What waits in Go that C called, where there is C.
var inC []func()

func park() {
	var ready sync.WaitGroup
	start := func(f func()) {
		ready.Add(1)
		go func() {
			ready.Done()
			f()
		}()
	}
	silent, full := make(chan int), make(chan int, 1)
	full <- 1
	for i := 0; i < 3; i++ {
		start(func() { receive(silent) })
	}
	start(func() { full <- 2 })
	start(func() { time.Sleep(1000 * time.Hour) })
	start(func() {
		select {
		case <-silent:
		case full <- 3:
		}
	})
	var mutex sync.Mutex
	mutex.Lock()
	start(mutex.Lock)
	var lock sync.RWMutex
	lock.Lock()
	start(lock.RLock)
	var group sync.WaitGroup
	group.Add(1)
	start(group.Wait)
	cond := sync.NewCond(&sync.Mutex{})
	start(func() { cond.L.Lock(); cond.Wait() })
	start(func() {
		pprof.Do(context.Background(), pprof.Labels("endpoint", "/orders", "tier", "gold"), func(context.Context) { <-silent })
	})
	read, written, _ := os.Pipe()
	pipe = []*os.File{read, written}
	start(func() { read.Read(make([]byte, 1)) })
	var raw [2]int
	syscall.Pipe(raw[:])
	start(func() { syscall.Read(raw[0], make([]byte, 1)) })
	start(func() { runtime.LockOSThread(); <-silent })
	start(func() { // in a panic
		defer func() { <-silent }()
		panic("held")
	})
	for _, f := range inC {
		start(f)
	}
	ready.Add(3)
	go (&box[int]{}).wait(&ready)
	go (&box[string]{}).wait(&ready)
	go deep(20, &ready)
	ready.Wait()
}

// contend makes two goroutines wait, for a mutex and for a channel, a known number of times.
func contend() {
	var mutex sync.Mutex
	for i := 0; i < 5; i++ {
		mutex.Lock()
		done := make(chan bool)
		go func() {
			mutex.Lock()
			mutex.Unlock()
			close(done)
		}()
		time.Sleep(3 * time.Millisecond)
		release(&mutex)
		await(done)
	}
}

//go:noinline
func release(mutex *sync.Mutex) { mutex.Unlock() }

func await(done chan bool) { <-done }

func write(folder string) {
	debug.SetGCPercent(-1)
	runtime.GC()
	if leaks := pprof.Lookup("goroutineleak"); leaks != nil { // 1.27 and newer: marks what waits for ever
		leaks.WriteTo(io.Discard, 0)
	}
	runtime.GC()
	for _, name := range []string{"heap", "goroutine", "block", "mutex"} {
		file, err := os.Create(filepath.Join(folder, name+".pb.gz"))
		if err != nil {
			panic(err)
		}
		if err := pprof.Lookup(name).WriteTo(file, 0); err != nil {
			panic(err)
		}
		file.Close()
	}
	file, _ := os.Create(filepath.Join(folder, "goroutines.txt"))
	pprof.Lookup("goroutine").WriteTo(file, 2)
	file.Close()
}

// figures says what the runtime counts of itself, in a line.
func figures() string {
	names := []string{
		"/gc/cycles/total:gc-cycles", "/gc/heap/live:bytes", "/gc/heap/goal:bytes", "/gc/gogc:percent", "/gc/gomemlimit:bytes",
		"/sched/gomaxprocs:threads", "/memory/classes/total:bytes", "/memory/classes/heap/released:bytes", "/gc/heap/allocs:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	text := ""
	for _, sample := range samples {
		text += fmt.Sprint(sample.Value.Uint64(), " ")
	}
	return text + fmt.Sprint(stats.NumGC, " ", int64(stats.PauseTotal), " ", int64(stats.Pause[0]), " ", runtime.NumGoroutine())
}

//go:noinline
func leaked() { <-nothing }

var running, spanned atomic.Bool

//go:noinline
func run() {
	for {
		running.Store(true)
	}
}

//go:noinline
func unreachable(end func(*box[[64]byte])) { runtime.SetFinalizer(new(box[[64]byte]), end) }

func finalize(busy bool) {
	begun := make(chan bool)
	unreachable(func(*box[[64]byte]) {
		close(begun)
		if busy {
			run()
		}
		<-nothing
	})
	runtime.GC()
	<-begun
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "idle" {
		fmt.Println("ready")
		bufio.NewScanner(os.Stdin).Scan()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "off" {
		runtime.MemProfileRate = 0
	} else {
		runtime.MemProfileRate = 1 << 14
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(1)
	}
	fill(300, 20000)
	fill(50, 700000)
	waste(300)
	grow(12)
	contend()
	park()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if folder, ok := strings.CutPrefix(lines.Text(), "write "); ok {
			write(folder)
			fmt.Println("written")
		}
		switch lines.Text() {
		case "figures":
			fmt.Println(figures())
		case "tune": // a pace that is limited by memory
			runtime.GOMAXPROCS(3)
			debug.SetGCPercent(50)
			debug.SetMemoryLimit(60 << 20)
			runtime.GC()
			fmt.Println("tuned")
		case "uncollected":
			debug.SetGCPercent(-1)
			debug.SetMemoryLimit(math.MaxInt64)
			fmt.Println("uncollected")
		case "exec": // the same program again, in the same process
			syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		case "more": // of what there was before
			fill(100, 20000)
			contend()
			fmt.Println("done")
		case "leak": // goroutines that are never done, more and more
			go func() {
				for {
					go leaked()
					time.Sleep(time.Millisecond)
				}
			}()
			fmt.Println("leaks")
		case "finalize": // what is unreachable ends in a function that waits, or that runs, for ever
			finalize(len(os.Args) > 1 && os.Args[1] == "busy")
			fmt.Println("finalizes")
		case "run": // a goroutine that runs, and one in a span
			go run()
			go pprof.Do(context.Background(), pprof.Labels(
				"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736", "span_id", "00f067aa0ba902b7", "user", "ada",
			), func(context.Context) { spanned.Store(true); <-nothing })
			for !running.Load() || !spanned.Load() {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("runs")
		}
	}
}
