// A program that serves its profiles itself, to those who know a token where one is given, by itself or as the password of ada: served [at=ADDRESS] [TOKEN [CERTIFICATE KEY]], over TLS
// where it has these two PEM files. It says "listening ADDRESS" and "ready", and to
// each line "churn" it allocates and waits a known amount, collects garbage and says "churned"; to "again" it becomes the same program anew, by the same number and with the
// same socket, as servers do that are renewed under load, as the user whose number is in USER_AGAIN, if there is one, as those do that are started for a socket; it uses CPU time all the while, and ends at the end of its input.
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	kept [][]byte
	sink int
)

//go:noinline
func keep(size int) { kept = append(kept, make([]byte, size)) }

var wasted []byte

//go:noinline
func waste(size int) { wasted = make([]byte, size) }

//go:noinline
func wait() {
	var mutex sync.Mutex
	mutex.Lock()
	begun, done := make(chan bool), make(chan bool)
	go func() {
		close(begun)
		mutex.Lock()
		mutex.Unlock()
		close(done)
	}()
	// However busy the machine is, it waits by now, or does soon.
	<-begun
	time.Sleep(50 * time.Millisecond)
	mutex.Unlock()
	<-done
}

//go:noinline
func spin() {
	for {
		for i := 0; i < 1000000; i++ {
			sink += i
		}
		time.Sleep(time.Millisecond)
	}
}

func main() {
	// When the next allocation is sampled was drawn at the old rate, for each processor: it is drawn anew once that is passed, or with the processor. Until then
	// what is kept would be in no profile.
	processors := runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 1 << 12
	for i := 0; i < 1000; i++ {
		waste(100000)
	}
	runtime.GOMAXPROCS(processors)
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	at := "127.0.0.1:0"
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "at=") {
		at = os.Args[1][3:]
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	var listener net.Listener
	var err error
	if number, isAgain := os.LookupEnv("SOCKET"); isAgain {
		descriptor, _ := strconv.Atoi(number)
		listener, err = net.FileListener(os.NewFile(uintptr(descriptor), "socket"))
	} else {
		listener, err = net.Listen("tcp", at)
	}
	if err != nil {
		panic(err)
	}
	var handler http.Handler = http.DefaultServeMux
	if len(os.Args) > 1 {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if r.Header.Get("Authorization") != "Bearer "+os.Args[1] && (user != "ada" || password != os.Args[1]) {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			http.DefaultServeMux.ServeHTTP(w, r)
		})
	}
	go spin()
	for i := 0; i < 100; i++ {
		keep(100000)
	}
	runtime.GC()
	// Who asked before is answered now.
	if len(os.Args) > 3 {
		go http.ServeTLS(listener, handler, os.Args[2], os.Args[3])
	} else {
		go http.Serve(listener, handler)
	}
	fmt.Println("listening", listener.Addr())
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "churn" {
			for i := 0; i < 100; i++ {
				keep(100000)
			}
			wait()
			runtime.GC()
			fmt.Println("churned")
		}
		if lines.Text() == "again" {
			file, err := listener.(*net.TCPListener).File()
			if err != nil {
				panic(err)
			}
			// What is opened is closed by exec, unless this is taken back.
			if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0); errno != 0 {
				panic(errno)
			}
			if user, err := strconv.Atoi(os.Getenv("USER_AGAIN")); err == nil {
				syscall.Setgid(user)
				syscall.Setuid(user)
			}
			// A clock of CPU time would go on, and its signal end who does not handle it yet (execve(2), getitimer(2)).
			pprof.StopCPUProfile()
			panic(syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), "SOCKET="+strconv.Itoa(int(file.Fd())))))
		}
	}
}
