// Command chain is busy for some CPU time, so many calls deep, and then another program, or over:
//
//	chain MILLISECONDS DEPTH [PROGRAM ARGUMENT…]
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

//go:noinline
func deep(depth int, until time.Duration) int {
	if depth == 0 {
		return busy(until)
	}
	return 1 + deep(depth-1, until)
}

func number(argument string) int {
	number, err := strconv.Atoi(argument)
	if err != nil {
		panic(err)
	}
	return number
}

func main() {
	deep(number(os.Args[2]), used()+time.Duration(number(os.Args[1]))*time.Millisecond)
	if next := os.Args[3:]; len(next) > 0 {
		panic(syscall.Exec(next[0], next, os.Environ()))
	}
}
