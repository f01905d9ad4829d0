// Processes that are soon over.
//
// early MILLISECONDS PROGRAM…: starts these programs, each of which is this one, one after the other; each is busy for so much CPU time, and ends. Prints
// "process PID STARTED USED" for each: when it was started, in nanoseconds since 1970, and the nanoseconds of CPU time that the kernel says it used from its
// fork to its end. Without programs it is busy by itself, under the label "at": "work".
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

var sink uint64

func main() {
	milliseconds, err := strconv.Atoi(os.Args[1])
	must(err)
	if len(os.Args) == 2 {
		pprof.Do(context.Background(), pprof.Labels("at", "work"), func(context.Context) {
			for used() < time.Duration(milliseconds)*time.Millisecond {
				sink += busy(100_000)
			}
		})
		return
	}
	for _, program := range os.Args[2:] {
		command := exec.Command(program, os.Args[1])
		command.Stderr = os.Stderr
		started := time.Now()
		must(command.Run())
		usage := command.ProcessState
		fmt.Println("process", usage.Pid(), started.UnixNano(), (usage.UserTime() + usage.SystemTime()).Nanoseconds())
	}
	fmt.Println("ended")
}

//go:noinline
func busy(n int) uint64 {
	x := uint64(n)
	for i := 0; i < n; i++ {
		x = (x ^ (x >> 7)) * 0x9E3779B97F4A7C15
	}
	return x
}

// used is the CPU time that the process has had: CLOCK_PROCESS_CPUTIME_ID, clock_gettime(2).
func used() time.Duration {
	const process = 2
	var now syscall.Timespec
	if _, _, no := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, process, uintptr(unsafe.Pointer(&now)), 0); no != 0 {
		panic(no)
	}
	return time.Duration(now.Nano())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
