// Troubles is a small service with four bugs, each of a kind that Go's runtime keeps books of: docs/go-runtime.md finds them from outside. It serves nothing
// but itself: a load of its own goes through it until it ends, by a signal, with standard input, or after -seconds.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 0, "end after so many seconds; 0: run on")
	serve := flag.String("serve", "", "serve net/http/pprof there, such as 127.0.0.1:6060, for --pull")
	untilEOF := flag.Bool("until-eof", false, "end, too, when standard input ends")
	flag.Parse()

	// Both are off in Go unless a program turns them on: one event in 10 µs of waiting, one in 10 waits for a lock. That the heap's books are kept at
	// all takes a use of runtime/pprof, or net/http/pprof, anywhere in the program: without, the linker leaves them out.
	runtime.SetBlockProfileRate(10_000)
	runtime.SetMutexProfileFraction(10)

	if *serve != "" {
		go func() { fmt.Fprintln(os.Stderr, "troubles:", http.ListenAndServe(*serve, nil)) }()
	}
	for range 4 {
		go requests()
	}
	fmt.Println("ready", os.Getpid())
	wait(*seconds, *untilEOF)
}

// requests is the load: each request goes through all parts of the service.
func requests() {
	store, counters, work := newStore(), &counters{}, newQueue()
	for number := 0; ; number++ {
		user := fmt.Sprintf("user-%d", number)
		store.login(user)
		counters.count("login")
		if number%10 == 0 {
			notify(user)
		}
		work.enqueue(number)
		time.Sleep(time.Millisecond)
	}
}

func wait(seconds int, untilEOF bool) {
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	if seconds > 0 {
		time.AfterFunc(time.Duration(seconds)*time.Second, func() { end <- os.Interrupt })
	}
	if untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end <- os.Interrupt
		}()
	}
	<-end
}
