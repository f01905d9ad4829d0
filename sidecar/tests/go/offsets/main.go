// Offsets of fields in Go's runtime, as the debug information of a program has them: what the sidecar's table is compared with.
//
// offsets BINARY: prints a line "struct.field offset" for each.
package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
)

var wanted = map[string][]string{
	"runtime.g":     {"stack", "sched", "m", "goid", "startpc", "labels"},
	"runtime.m":     {"g0", "curg"},
	"runtime.gobuf": {"sp", "bp"},
	"runtime.stack": {"hi"},
}

func main() {
	file, err := elf.Open(os.Args[1])
	check(err)
	data, err := file.DWARF()
	check(err)
	reader := data.Reader()
	for {
		entry, err := reader.Next()
		check(err)
		if entry == nil {
			return
		}
		name, _ := entry.Val(dwarf.AttrName).(string)
		if fields, ok := wanted[name]; ok && entry.Tag == dwarf.TagStructType {
			show(data, entry.Offset, name, fields)
			delete(wanted, name)
		}
	}
}

func show(data *dwarf.Data, at dwarf.Offset, name string, fields []string) {
	kind, err := data.Type(at)
	check(err)
	for _, field := range kind.(*dwarf.StructType).Field {
		for _, one := range fields {
			if field.Name == one {
				fmt.Printf("%s.%s %d\n", name, one, field.ByteOffset)
			}
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
