// Go that calls C, C that calls Go, and a thread of C's that calls Go: in C no function keeps anything in the frame pointer's register by itself.
//
// nested SECONDS: after the first line of its input, each of the three for so many seconds of processor time.
package main

// unsigned long outer_c(unsigned long), calls_go(unsigned long), in_thread(unsigned long), zeros(void);
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"
)

var nanos time.Duration

//export goWorks
func goWorks(x C.ulong) C.ulong {
	for until := time.Now().Add(nanos); time.Now().Before(until); {
		x = spin(x)
	}
	return x
}

//go:noinline
func spin(x C.ulong) C.ulong {
	for i := 0; i < 1_000_000; i++ {
		x = x*1664525 + 1013904223
	}
	return x
}

//go:noinline
func callsC(x C.ulong) C.ulong {
	for until := time.Now().Add(nanos); time.Now().Before(until); {
		x = C.outer_c(x)
	}
	return x
}

// callsBack has C call Go with numbers of which cgo's own function keeps each in the register of the frame pointer meanwhile: none, an address, and others.
//
//go:noinline
func callsBack(x C.ulong) C.ulong {
	nanos /= 3
	x += C.calls_go(0) + C.calls_go(C.ulong(C.zeros())) + C.calls_go(x)
	nanos *= 3
	return x
}

//go:noinline
func callsThread(x C.ulong) C.ulong { return C.in_thread(x) + 1 }

func main() {
	bufio.NewReader(os.Stdin).ReadString('\n')
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	nanos = time.Duration(seconds * 1e9)
	fmt.Println(callsThread(callsBack(callsC(1))))
}
