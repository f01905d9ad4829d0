// A library of Go in a program that is not: its code runs on stacks of a few KiB, which are copied to larger ones when they are full.
package main

import "C"
import "sync"

// Goroutines at once.
const many = 32

// Works on many goroutines, each of which needs another part of its stack.
//
//export library_work
func library_work(depth, rounds C.uint) C.ulong {
	var all sync.WaitGroup
	var sums [many]uint64
	for at := range sums {
		all.Add(1)
		go func(at int) {
			defer all.Done()
			sums[at] = frames(uint64(depth)+uint64(at), uint64(rounds))
		}(at)
	}
	all.Wait()
	sum := uint64(0)
	for _, one := range sums {
		sum += one
	}
	return C.ulong(sum)
}

//go:noinline
func frames(depth, rounds uint64) uint64 {
	if depth == 0 {
		return leaf(rounds)
	}
	return frames(depth-1, rounds) + leaf(rounds/64)
}

//go:noinline
func leaf(rounds uint64) uint64 {
	x := uint64(88172645463325252)
	for i := uint64(0); i < rounds; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

func main() {}
