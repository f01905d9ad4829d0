// A program that allocates as often on each of many stacks between any two collections of garbage: cycles LOG: on 2^LOG stacks, objects of 3072 bytes, of which it keeps
// none. So whatever collection heap records are as of, all of these have the same counts. It collects as fast as it can, sixteen times, and then rests a little. It says
// "ready" once each stack has been published, and ends at the end of its input.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"
)

var (
	wasted []byte
	sink   *[3072]byte
)

//go:noinline
func waste(size int) { wasted = make([]byte, size) }

//go:noinline
func leaf() { sink = new([3072]byte) }

//go:noinline
func left(bits, depth int) {
	if depth == 0 {
		leaf()
	} else if bits&1 == 0 {
		left(bits>>1, depth-1)
	} else {
		right(bits>>1, depth-1)
	}
}

//go:noinline
func right(bits, depth int) {
	if depth == 0 {
		leaf()
	} else if bits&1 == 0 {
		left(bits>>1, depth-1)
	} else {
		right(bits>>1, depth-1)
	}
}

func round(log int) {
	for bits := 0; bits < 1<<log; bits++ {
		left(bits, log)
	}
	sink = nil
	runtime.GC()
}

func main() {
	log, _ := strconv.Atoi(os.Args[1])
	// When the next allocation is sampled was drawn at the old rate, for each processor: it is drawn anew once that is passed, or with the processor. Until then
	// counts would differ.
	processors := runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 1
	for i := 0; i < 1000; i++ {
		waste(100000)
	}
	runtime.GOMAXPROCS(processors)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		pprof.Lookup("heap").WriteTo(io.Discard, 0)
		os.Exit(0)
	}()
	for rounds := 0; ; rounds++ {
		round(log)
		if rounds == 3 {
			fmt.Println("ready")
		}
		if rounds%16 == 15 {
			time.Sleep(20 * time.Millisecond)
		}
	}
}
