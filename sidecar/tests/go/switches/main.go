// A program that is busy where Go's runtime has left the goroutine's stack: it grows stacks (morestack), has its own stack told (systemstack), and lets others run
// (mcall), and asks for the time, each in a function of its own. It says "ready" and goes on until its input ends.
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	fmt.Println("ready")
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	text := make([]byte, 1<<16)
	for {
		grows()
		tells(text)
		yields()
		asks()
	}
}

// grows has a new goroutine need more and more stack, which is copied each time.
//
//go:noinline
func grows() {
	for i := 0; i < 20; i++ {
		done := make(chan bool)
		go func() {
			deeper(400)
			done <- true
		}()
		<-done
	}
	for i := 0; i < 1000; i++ {
		done := make(chan bool)
		go wide(done)
		<-done
	}
}

// wide needs more than there is from the first instruction of its goroutine on.
//
//go:noinline
func wide(done chan bool) {
	var room [64 << 10]byte
	room[len(os.Args)] = 1
	done <- room[len(os.Args)] == 1
}

//go:noinline
func deeper(calls int) byte {
	var room [512]byte
	room[calls%len(room)] = 1
	if calls == 0 {
		return room[0]
	}
	return deeper(calls-1) + room[calls%len(room)]
}

//go:noinline
func tells(text []byte) {
	for i := 0; i < 50; i++ {
		told(20, text)
	}
}

//go:noinline
func told(calls int, text []byte) int {
	if calls == 0 {
		return runtime.Stack(text, false)
	}
	return told(calls-1, text) + 1
}

//go:noinline
func yields() {
	for i := 0; i < 20000; i++ {
		runtime.Gosched()
	}
}

//go:noinline
func asks() {
	for i := 0; i < 20000; i++ {
		time.Now()
	}
}
