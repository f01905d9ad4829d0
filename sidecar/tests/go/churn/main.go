// A program that allocates, collects garbage, grows stacks and starts goroutines as fast as it can; it ends at the end of its input.
package main

import (
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

var (
	sink  [64][]byte
	mutex sync.Mutex
)

//go:noinline
func down(n int, c chan int) int {
	var frame [128]byte
	frame[n%128] = byte(n)
	if n == 0 {
		c <- 1
		return int(frame[0])
	}
	return down(n-1, c) + int(frame[n%128])
}

func churn(id int) {
	for i := 0; ; i++ {
		c := make(chan int)
		for depth := 0; depth < 32; depth++ {
			go down(depth*3, c)
		}
		for depth := 0; depth < 32; depth++ {
			<-c
		}
		mutex.Lock()
		sink[(id*7+i)%len(sink)] = make([]byte, 1000+i%50000)
		mutex.Unlock()
	}
}

func main() {
	runtime.MemProfileRate = 512
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	for id := 0; id < 4; id++ {
		go churn(id)
	}
	go func() {
		for {
			runtime.GC()
		}
	}()
	os.Stdout.WriteString("ready\n")
	io.Copy(io.Discard, os.Stdin)
	pprof.Lookup("heap").WriteTo(io.Discard, 0)
}
