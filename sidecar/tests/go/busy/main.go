// A program that works in many ways of the runtime and the library, and writes what its own profiler saw of it: allocation and its collection,
// maps, assembly, sorting, reflection, panics, closures, deep calls, many goroutines.
//
// busy FILE SECONDS: after a line on its input, works for so much CPU time, whatever else the machine does, and writes the profile to FILE.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"runtime/pprof"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type order struct {
	Name  string
	Lines []line
}

type line struct {
	Item  string
	Count int
	Price float64
}

var words = regexp.MustCompile(`(\w+)-(\d+)`)

//go:noinline
func leaf(a, b uint64) uint64 { return a*0x9e3779b97f4a7c15 ^ b>>7 }

//go:noinline
func leaves(n uint64) (sum uint64) {
	for i := uint64(0); i < n; i++ {
		sum += leaf(i, sum)
	}
	return sum
}

//go:noinline
func encode() int {
	lines := []line{}
	for i := 0; i < 50; i++ {
		lines = append(lines, line{"item-" + strconv.Itoa(i), i, float64(i) * 1.5})
	}
	text, _ := json.Marshal(order{"name", lines})
	var back order
	json.Unmarshal(text, &back)
	return len(back.Lines)
}

//go:noinline
func count() int {
	counts := map[string]int{}
	for i := 0; i < 2000; i++ {
		counts[strconv.Itoa(i%701)]++
	}
	keys := make([]string, 0, len(counts))
	for key := range counts {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return len(keys)
}

//go:noinline
func match() int {
	return len(words.FindAllStringSubmatch(strings.Repeat("abc-123 def ghi-4 ", 50), -1))
}

//go:noinline
func hash() byte {
	sum := sha256.Sum256(bytes.Repeat([]byte("x"), 20000))
	return sum[0]
}

//go:noinline
func power() int {
	return new(big.Int).Exp(big.NewInt(123456789), big.NewInt(40000), nil).BitLen()
}

//go:noinline
func deep(n int) int {
	if n == 0 {
		return int(leaves(2000) & 1)
	}
	return deep(n-1) + 1
}

//go:noinline
func caught() (result int) {
	defer func() {
		if recover() != nil {
			result = 1
		}
	}()
	var none []int
	return none[len(os.Args)+5]
}

// used is the CPU time that the process has had.
func used() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func work(until time.Duration) {
	for used() < until {
		leaves(200000)
		encode()
		count()
		match()
		hash()
		power()
		deep(100)
		for i := 0; i < 100; i++ {
			caught()
		}
	}
}

func main() {
	bufio.NewReader(os.Stdin).ReadString('\n')
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	var profile bytes.Buffer
	pprof.StartCPUProfile(&profile)
	until := used() + time.Duration(seconds*float64(time.Second))
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			work(until)
		}()
	}
	all.Wait()
	pprof.StopCPUProfile()
	if err := os.WriteFile(os.Args[1], profile.Bytes(), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
