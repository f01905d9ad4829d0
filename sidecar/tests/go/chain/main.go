// Command chain is busy for some CPU time, and then another program, or over:
//
//	chain MILLISECONDS [PROGRAM ARGUMENT…]
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

//go:noinline
func busy(until time.Duration) (sum int) {
	for used() < until {
		for i := 0; i < 100_000; i++ {
			sum += i * sum
		}
	}
	return sum
}

func main() {
	milliseconds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	busy(used() + time.Duration(milliseconds)*time.Millisecond)
	if next := os.Args[2:]; len(next) > 0 {
		panic(syscall.Exec(next[0], next, os.Environ()))
	}
}
