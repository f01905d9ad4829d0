// Starts a thread in C, which calls Go once, where labels are set, and then computes in C: for so many seconds of processor time as its argument says, after the first line of its input.
package main

// void work_in_thread(double seconds);
import "C"

import (
	"bufio"
	"context"
	"os"
	"runtime/pprof"
	"strconv"
)

//export called
func called() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("endpoint", "/called")))
}

func main() {
	bufio.NewReader(os.Stdin).ReadString('\n')
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	C.work_in_thread(C.double(seconds))
}
