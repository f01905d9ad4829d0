// A Go program whose samples are known: each of its goroutines is busy under labels of its own.
//
// labelled PAIRS GOROUTINES MILLISECONDS [LENGTH [DEPTH]]: each goroutine has PAIRS labels "key-I": "value-I-of-G", filled up with "x" to LENGTH
// bytes of each key and four times as many of each value, and works below DEPTH calls. It prints "spin ADDRESS", where the function is
// that they work in, "goroutine G ID" for each and "ready", waits for a line, works until the process has used so much more CPU time, and prints
// how much it was from its start, in nanoseconds.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

func main() {
	pairs, goroutines, most := number(1), number(2), int64(number(3))*1000000
	fmt.Println("spin", reflect.ValueOf(spin).Pointer())
	start := make(chan int64)
	var ready, done sync.WaitGroup
	for g := 0; g < goroutines; g++ {
		ready.Add(1)
		done.Add(1)
		go work(g, pairs, most, start, &ready, &done)
	}
	ready.Wait()
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	began := cpu()
	for g := 0; g < goroutines; g++ {
		start <- began
	}
	done.Wait()
	fmt.Println("used", cpu())
}

func number(index int) int {
	if index >= len(os.Args) {
		return 0
	}
	value, err := strconv.Atoi(os.Args[index])
	if err != nil {
		panic(err)
	}
	return value
}

func work(g, pairs int, most int64, start chan int64, ready, done *sync.WaitGroup) {
	defer done.Done()
	var labels []string
	for i := 0; i < pairs; i++ {
		labels = append(labels, filled(fmt.Sprintf("key-%d", i), number(4)), filled(fmt.Sprintf("value-%d-of-%d", i, g), 4*number(4)))
	}
	pprof.Do(context.Background(), pprof.Labels(labels...), func(context.Context) {
		fmt.Println("goroutine", g, id())
		ready.Done()
		began := <-start
		below(number(5), func() {
			for cpu()-began < most {
				spin()
			}
		})
	})
}

func filled(text string, length int) string {
	if len(text) < length {
		text += strings.Repeat("x", length-len(text))
	}
	return text
}

//go:noinline
func below(calls int, do func()) {
	if calls == 0 {
		do()
		return
	}
	below(calls-1, do)
}

//go:noinline
func spin() uint64 {
	x := uint64(1)
	for i := 0; i < 1000000; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// id is the number of this goroutine: the first line of its stack is "goroutine 7 [running]:".
func id() string {
	text := make([]byte, 64)
	fields := bytes.Fields(text[:runtime.Stack(text, false)])
	return string(fields[1])
}

func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
