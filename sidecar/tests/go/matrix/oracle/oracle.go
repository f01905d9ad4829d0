// Package oracle says of addresses what the runtime knows of them, in a program that may have no symbols.
package oracle

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"runtime"
	_ "runtime/pprof" // Where garble looks for what is linked to.
	"strings"
	_ "unsafe"
)

//go:linkname expand runtime/pprof.runtime_expandFinalInlineFrame
func expand(stack []uintptr) []uintptr

//go:linkname symbolName runtime/pprof.runtime_FrameSymbolName
func symbolName(frame *runtime.Frame) string

// Here is where function lies: what differs between two processes of one program is how far it was moved.
func Here(function func()) uintptr { return reflect.ValueOf(function).Pointer() }

// Answer reads addresses of a process of this program in which function was at there, each as "ADDRESS", which was interrupted, or "ADDRESS call", to which a
// call returns. It writes a line for each: "NAME FILE LINE", innermost inlined call first, with ";" between; names and files in hexadecimal digits.
// Nothing stands there of what is no code of Go, "?" where the runtime itself takes the end of a function for the next one.
func Answer(function func(), there uintptr, questions io.Reader, answers io.Writer) {
	lines, out := bufio.NewScanner(questions), bufio.NewWriter(answers)
	defer out.Flush()
	for lines.Scan() {
		address, isCall := strings.CutSuffix(lines.Text(), " call")
		var pc uintptr
		if _, err := fmt.Sscanf(address, "%x", &pc); err != nil {
			panic(err)
		}
		pc += Here(function) - there
		if !isCall {
			// All that asks the runtime of an address asks what a return address belongs to.
			pc++
		}
		fmt.Fprintln(out, frames(pc))
	}
}

func frames(pc uintptr) string {
	var frames []string
	for _, virtual := range expand([]uintptr{pc}) {
		if before, at := runtime.FuncForPC(virtual-1), runtime.FuncForPC(virtual); before != nil && (at == nil || before.Entry() != at.Entry()) {
			return "?"
		}
		frame, _ := runtime.CallersFrames([]uintptr{virtual}).Next()
		if frame.PC == 0 {
			break
		}
		frames = append(frames, fmt.Sprintf("%x %x %d", symbolName(&frame), frame.File, frame.Line))
	}
	return strings.Join(frames, ";")
}
