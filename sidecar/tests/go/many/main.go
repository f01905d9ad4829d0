// A program with many goroutines and many stacks that allocate: many GOROUTINES LOG: so many goroutines that wait, each of two kinds of work at a depth of its
// number, and 2^LOG different stacks with an allocation. It says "ready" and ends at the end of its input.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
)

var (
	kept    [][]byte
	nothing chan int
)

//go:noinline
func left(bits, depth int) {
	if depth == 0 {
		kept = append(kept, make([]byte, 64))
	} else if bits&1 == 0 {
		left(bits>>1, depth-1)
	} else {
		right(bits>>1, depth-1)
	}
}

//go:noinline
func right(bits, depth int) {
	if depth == 0 {
		kept = append(kept, make([]byte, 64))
	} else if bits&1 == 0 {
		left(bits>>1, depth-1)
	} else {
		right(bits>>1, depth-1)
	}
}

//go:noinline
func park(depth int, ready *sync.WaitGroup) {
	if depth > 0 {
		park(depth-1, ready)
		return
	}
	ready.Done()
	<-nothing
}

func main() {
	goroutines, _ := strconv.Atoi(os.Args[1])
	log, _ := strconv.Atoi(os.Args[2])
	runtime.MemProfileRate = 1
	for bits := 0; bits < 1<<log; bits++ {
		left(bits, log)
	}
	runtime.MemProfileRate = 1 << 30
	var ready sync.WaitGroup
	ready.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go park(i%20, &ready)
	}
	ready.Wait()
	runtime.GC()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	pprof.Lookup("heap").WriteTo(io.Discard, 0)
}
