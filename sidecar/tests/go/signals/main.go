// Sends signals to its own thread, one after the other, which the runtime takes in the middle of what it does. Ends when its standard input does.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

//go:noinline
func raise(pid, tid uintptr) {
	syscall.RawSyscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGUSR1))
}

//go:noinline
func interrupted() {
	pid, tid := uintptr(os.Getpid()), uintptr(syscall.Gettid())
	for i := 0; i < 10_000; i++ {
		raise(pid, tid)
	}
}

func main() {
	runtime.LockOSThread()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	for {
		interrupted()
	}
}
