// A program with many goroutines and many stacks that allocate: many GOROUTINES LOG [LEFT [LABELLED]]: so many goroutines that wait, each of two kinds of work at a depth
// of its number, and 2^LOG different stacks with an allocation; where LEFT is given, all goroutines but so many, the last ones, end before it says "ready"; where LABELLED is, each
// has labels of its own. It ends at the end of its input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

var (
	kept    [][]byte
	nothing chan int
	ended   = make(chan int)
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
func park(depth int, ready *sync.WaitGroup, until chan int) {
	if depth > 0 {
		park(depth-1, ready, until)
		return
	}
	ready.Done()
	<-until
}

func main() {
	goroutines, _ := strconv.Atoi(os.Args[1])
	log, _ := strconv.Atoi(os.Args[2])
	staying := goroutines
	if len(os.Args) > 3 {
		staying, _ = strconv.Atoi(os.Args[3])
	}
	runtime.MemProfileRate = 1
	for bits := 0; bits < 1<<log; bits++ {
		left(bits, log)
	}
	runtime.MemProfileRate = 1 << 30
	var ready sync.WaitGroup
	ready.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		until := ended
		if i >= goroutines-staying {
			until = nothing
		}
		if len(os.Args) > 4 {
			labels := pprof.Labels("request", fmt.Sprintf("%016x", i), "endpoint", "/orders")
			go pprof.Do(context.Background(), labels, func(context.Context) { park(i%20, &ready, until) })
		} else {
			go park(i%20, &ready, until)
		}
	}
	ready.Wait()
	close(ended)
	for runtime.NumGoroutine() > staying+1 {
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	pprof.Lookup("heap").WriteTo(io.Discard, 0)
}
