// Says of every address of its own text what the runtime says of it: the oracle of the sidecar's reader of Go's tables.
//
// `symbols` writes a line for each function: where it begins, counted from the start of the text, how many addresses were looked at,
// and a hash of what they are. `symbols -of ENTRY` writes what they are. `-every N` looks at every Nth address.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"unsafe"
)

// Words of moduledata: runtime/symtab.go. They are the same in all versions that this is built with.
const (
	names = 1
	maxPC = 21
	text  = 22
)

//go:linkname firstmoduledata runtime.firstmoduledata
var firstmoduledata [64]uintptr

//go:linkname expand runtime/pprof.runtime_expandFinalInlineFrame
func expand(stack []uintptr) []uintptr

type funcInfo struct {
	function, module unsafe.Pointer
}

//go:linkname findfunc runtime.findfunc
func findfunc(pc uintptr) funcInfo

// depth is the depth of the stack at pc: the third table of the function's record (runtime/runtime2.go, _func.pcsp).
func depth(pc uintptr) int32 {
	function := findfunc(pc)
	return value(function, *(*uint32)(unsafe.Add(function.function, 16)), pc)
}

// first is the first of all names.
var first = func() string {
	name := (*byte)(unsafe.Pointer(firstmoduledata[names]))
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(name), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(name, length))
}()

func describe(pc uintptr, buffer []byte) []byte {
	for _, virtual := range expand([]uintptr{pc + 1}) {
		frame, _ := runtime.CallersFrames([]uintptr{virtual}).Next()
		name := symbolName(&frame)
		if name == "" {
			// The runtime takes the name at offset 0 for none: runtime/symtab.go, funcName.
			name = first
		}
		buffer = append(buffer, fmt.Sprintf("%s %s:%d %d\n", name, frame.File, frame.Line, startLine(&frame))...)
	}
	return append(buffer, fmt.Sprintf("%d\n", depth(pc))...)
}

func main() {
	of := flag.Int64("of", -1, "the function to write about, by its entry from the start of the text on")
	every := flag.Uint64("every", 1, "look at every Nth address")
	flag.Parse()
	work(len(os.Args))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	start, end := firstmoduledata[text], firstmoduledata[maxPC]
	hash, count, last := fnv.New64a(), 0, findfunc(start)
	var buffer []byte
	flush := func() {
		if count > 0 && *of < 0 {
			fmt.Fprintf(out, "%d %d %x\n", entry(last)-start, count, hash.Sum64())
		}
		count = 0
		hash.Reset()
	}
	for pc := start; pc < end; pc += uintptr(*every) {
		function := findfunc(pc)
		if function != last {
			flush()
			last = function
		}
		// The runtime takes an address for a return address, which at the end of a function belongs to the next one.
		if function.function == nil || findfunc(pc+1) != function {
			continue
		}
		if *of >= 0 && int64(entry(function)-start) != *of {
			continue
		}
		buffer = describe(pc, buffer[:0])
		if *of >= 0 {
			fmt.Fprintf(out, "%d\n%s", pc-start, buffer)
		}
		hash.Write(buffer)
		count++
	}
	flush()
}

func entry(function funcInfo) uintptr {
	return firstmoduledata[text] + uintptr(*(*uint32)(function.function))
}
