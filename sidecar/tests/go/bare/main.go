// A program without profiles: nothing in it reads those of the heap, so the linker leaves them out. It says "ready" and ends at the end of its input.
package main

import (
	"fmt"
	"io"
	"os"
)

var kept [][]byte

func main() {
	for i := 0; i < 100; i++ {
		kept = append(kept, make([]byte, 100_000))
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}
