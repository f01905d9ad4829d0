// A program whose goroutines change their labels as fast as they can, while the memory of those before is collected and used for something else.
//
// Each set says who made it, and one number twice: two numbers that differ, or somebody else's, were never set. Goroutines that are started inherit
// the set and wait. It ends at the end of its input.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
)

var (
	parked [4]chan int
	sink   [4][][]byte
)

func worker0() { work(0, child0) }
func worker1() { work(1, child1) }
func worker2() { work(2, child2) }
func worker3() { work(3, child3) }

func child0() { <-parked[0] }
func child1() { <-parked[1] }
func child2() { <-parked[2] }
func child3() { <-parked[3] }

func work(who int, child func()) {
	for turn := 0; ; turn++ {
		number := func() string { return fmt.Sprintf("%d-%09d", who, turn) }
		labels := pprof.Labels("who", strings.Repeat(string(rune('0'+who)), 11), "first", number(), "second", number())
		pprof.Do(context.Background(), labels, func(context.Context) {
			for i := 0; i < 8; i++ {
				go child()
			}
			for i := 0; i < 8; i++ {
				parked[who] <- 1
			}
		})
		// Of the sizes of labels and their sets, so that these have their places.
		sink[who] = sink[who][:0]
		for size := 8; size < 400; size += 8 {
			sink[who] = append(sink[who], bytes.Repeat([]byte{'x'}, size))
		}
	}
}

func main() {
	for who := range parked {
		parked[who] = make(chan int)
	}
	go worker0()
	go worker1()
	go worker2()
	go worker3()
	go func() {
		for {
			runtime.GC()
		}
	}()
	os.Stdout.WriteString("ready\n")
	io.Copy(io.Discard, os.Stdin)
}
