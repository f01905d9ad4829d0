// Command pprof_writer works for a while under pprof labels and writes the profiles that Go's runtime makes of it,
// cpu.pb.gz, heap.pb.gz, allocs.pb.gz, goroutine.pb.gz, mutex.pb.gz, block.pb.gz and threadcreate.pb.gz, into the
// folder that is its argument. They are what the tests of our own codec read.
package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// live keeps memory in use until the heap profile is written.
var live [][]byte

// sink keeps results in use.
var sink uint64

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pprof_writer FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pprof_writer:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	runtime.MemProfileRate = 4096
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)

	var cpu bytes.Buffer
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return err
	}
	work(600 * time.Millisecond)
	pprof.StopCPUProfile()
	if err := os.WriteFile(filepath.Join(folder, "cpu.pb.gz"), cpu.Bytes(), 0o644); err != nil {
		return err
	}

	allocate()
	contend()
	stop := park()
	defer close(stop)
	runtime.GC()
	for _, name := range []string{"heap", "allocs", "goroutine", "mutex", "block", "threadcreate"} {
		if err := write(folder, name); err != nil {
			return err
		}
	}
	return nil
}

func write(folder, name string) error {
	file, err := os.Create(filepath.Join(folder, name+".pb.gz"))
	if err != nil {
		return err
	}
	if err := pprof.Lookup(name).WriteTo(file, 0); err != nil {
		return err
	}
	return file.Close()
}

// work burns d of CPU time under labels: two endpoints with about as much each, one of them in a span, each label set made
// anew for each request, as a server does.
func work(d time.Duration) {
	span := pprof.Labels("endpoint", "/orders", "trace_id", "4bf92f3577b34da6a3ce929d0e0e4736", "span_id", "00f067aa0ba902b7")
	for end := used() + d; used() < end; {
		pprof.Do(context.Background(), span, func(context.Context) { hash(400) })
		pprof.Do(context.Background(), pprof.Labels("endpoint", "/search", "method", "GET"), func(context.Context) { order(200) })
		hash(50)
	}
}

// used is the CPU time that this process has used.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func hash(n int) {
	h := fnv.New64a()
	for i := 0; i < n; i++ {
		h.Write([]byte("the quick brown fox jumps over the lazy dog"))
	}
	sink += h.Sum64()
}

func order(n int) {
	words := strings.Fields(strings.Repeat("pear apple quince fig ", n))
	sort.Strings(words)
	sink += uint64(len(words[0]))
}

func allocate() {
	for i := 0; i < 64; i++ {
		live = append(live, make([]byte, 16<<10), make([]byte, 48<<10))
	}
	for i := 0; i < 200; i++ {
		sink += uint64(len(fmt.Sprint(i, strings.Repeat("x", 4096))))
	}
}

// contend makes goroutines wait for a lock and for a channel.
func contend() {
	var lock sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < 20; j++ {
				lock.Lock()
				time.Sleep(200 * time.Microsecond)
				lock.Unlock()
			}
		}()
	}
	all.Wait()
	ready := make(chan struct{})
	go func() { time.Sleep(time.Millisecond); close(ready) }()
	<-ready
}

// park leaves goroutines waiting under labels until the channel it returns is closed.
func park() chan struct{} {
	stop := make(chan struct{})
	for i := 0; i < 3; i++ {
		labels := pprof.Labels("worker", fmt.Sprint(i))
		go pprof.Do(context.Background(), labels, func(context.Context) { <-stop })
	}
	time.Sleep(10 * time.Millisecond)
	return stop
}
