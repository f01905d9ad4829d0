// Three quarters of its time in one function, one quarter in another, each under a label of its own, the work itself in a function that is
// inlined into both; in turns of lengths that are drawn, so that no clock is in step with them. Ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime/pprof"
)

var sink uint64

// Several products, each of which needs the one before: an interrupt comes between any two of them. Of one product, some processors are
// interrupted behind it alone, where the loop goes on.
func mix(x uint64) uint64 {
	x = (x ^ (x >> 7)) * 0x9E3779B97F4A7C15
	x = (x ^ (x >> 11)) * 0xBF58476D1CE4E5B9
	x = (x ^ (x >> 13)) * 0x94D049BB133111EB
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

func under(endpoint string, work func(int) uint64, n int) {
	labels := pprof.Labels("endpoint", endpoint)
	pprof.Do(context.Background(), labels, func(context.Context) { sink += work(n) })
}

func main() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	for {
		turn := 125_000 + rand.Intn(250_000)
		under("/heavy", heavy, 3*turn)
		under("/light", light, turn)
	}
}
