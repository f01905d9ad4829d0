// A program whose function `subject` calls functions of every form: without a frame, with a large one, in assembly, inlined, deferred, by
// wrappers, deep. It is stepped through, or read while it waits.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strings"
	"time"
)

var sink uint64

func init() { runtime.LockOSThread() }

//go:noinline
func leaf(a, b uint64) uint64 { return a*31 + b }

//go:noinline
func framed(a uint64) uint64 { return leaf(a, 1) + leaf(a, 2) }

//go:noinline
func large(a uint64) uint64 {
	var room [4096]byte
	for i := range room {
		room[i] = byte(a)
	}
	return leaf(uint64(room[a%4096]), a)
}

func inlined(a uint64) uint64 { return leaf(a, a) ^ 5 }

//go:noinline
func recursive(n uint64) uint64 {
	if n == 0 {
		return inlined(n)
	}
	return recursive(n-1) + 1
}

type shape interface{ area(uint64) uint64 }
type square struct{ side uint64 }

//go:noinline
func (s square) area(a uint64) uint64 { return leaf(s.side, a) }

//go:noinline
func deferred(a uint64) (result uint64) {
	defer func() {
		if recover() != nil {
			result = leaf(a, 7)
		}
	}()
	var none []uint64
	return none[a]
}

func assembly(a uint64) uint64 // in functions_amd64.s
func framedAssembly(a uint64) uint64

//go:noinline
func called(a uint64) uint64 { return leaf(a, 9) }

//go:noinline
func subject() {
	var sum uint64
	sum += framed(3) + large(4) + recursive(20) + inlined(2)
	for _, s := range []shape{square{2}, &square{3}} {
		sum += s.area(5)
	}
	sum += assembly(6) + framedAssembly(7)
	sum += deferred(8)
	hash := sha256.Sum256([]byte(strings.Repeat("x", 200)))
	sum += uint64(hash[0]) + uint64(bytes.IndexByte(hash[:], 0xff)) + uint64(len(strings.ToUpper("abc")))
	words := []string{"d", "b", "a", "c"}
	sort.Strings(words)
	counts := map[string]int{}
	for _, word := range words {
		counts[word] += len(word)
	}
	x := new(big.Int).Exp(big.NewInt(12345), big.NewInt(67), big.NewInt(1000000007))
	sum += x.Uint64() + uint64(time.Now().Nanosecond()&1) + uint64(len(fmt.Sprint(counts["a"], 2.5)))
	sink += sum
}

//go:noinline
func deepen(n int) int {
	var room [256]byte
	if n == 0 {
		return int(room[0])
	}
	return deepen(n-1) + int(room[n%256])
}

func main() {
	sink += uint64(deepen(400))
	fmt.Printf("%x\n", reflect.ValueOf(framed).Pointer())
	if len(os.Args) > 1 {
		io.Copy(io.Discard, os.Stdin)
	}
	subject()
}
