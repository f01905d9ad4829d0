// A plugin (-buildmode=plugin) of tests/go/plugged: allocations that it keeps, by itself and by way of whoever loaded it, and a place to wait at.
package main

import "sync"

var (
	Kept  [][]byte
	mutex sync.Mutex
)

func inlined(size int) []byte { return make([]byte, size) }

//go:noinline
func Fill(count int) {
	for i := 0; i < count; i++ {
		Kept = append(Kept, inlined(5000))
	}
}

//go:noinline
func Through(call func()) { call() }

//go:noinline
func Park(until chan bool) {
	mutex.Lock()
	mutex.Unlock()
	<-until
}
