// Prints what the DWARF of a Go program says of the runtime's structs that the sidecar reads: "struct size" and "struct.field offset" lines,
// "var name address size" and "const name value" lines, and "reason number text" lines for runtime.waitReasonStrings. What sidecar/src/go/layouts.rs is compared with.
package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
)

var structs = map[string]bool{
	"runtime.bucket": true, "runtime.memRecord": true, "runtime.memRecordCycle": true, "runtime.blockRecord": true,
	"runtime.g": true, "runtime.stack": true, "runtime.gobuf": true, "runtime.m": true,
	"runtime.mProfCycleHolder": true, "runtime.ticksType": true,
	"runtime.gcControllerState": true, "runtime.mstats": true, "runtime.mutex": true,
	"runtime.hmap": true, "bucket<string,string>": true, "runtime/pprof.label": true, "internal/runtime/pprof/label.Label": true,
}

var variables = map[string]bool{
	"runtime.mbuckets": true, "runtime.bbuckets": true, "runtime.xbuckets": true, "runtime.MemProfileRate": true,
	"runtime.blockprofilerate": true, "runtime.mutexprofilerate": true, "runtime.allgs": true, "runtime.allglen": true,
	"runtime.allgptr": true, "runtime.ticks": true, "runtime.mProfCycle": true, "runtime.disableMemoryProfiling": true,
	"runtime.waitReasonStrings": true, "runtime.mProf": true,
	"runtime.gcController": true, "runtime.memstats": true, "runtime.gomaxprocs": true,
	"runtime.profMemActiveLock": true,
}

var constants = map[string]bool{
	"runtime._Gidle": true, "runtime._Grunnable": true, "runtime._Grunning": true, "runtime._Gsyscall": true, "runtime._Gwaiting": true,
	"runtime._Gdead": true, "runtime._Gcopystack": true, "runtime._Gpreempted": true, "runtime._Gleaked": true, "runtime._Gdeadextra": true,
	"runtime.maxStack": true, "runtime.maxProfStackDepth": true,
	"runtime.sameSizeGrow": true, "runtime.minTopHash": true, "internal/abi.MapBucketCount": true,
	"runtime._Gscan": true, "runtime.memProfile": true, "runtime.blockProfile": true, "runtime.mutexProfile": true,
}

func main() {
	file, err := elf.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	data, err := file.DWARF()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for reader := data.Reader(); ; {
		entry, err := reader.Next()
		if entry == nil || err != nil {
			break
		}
		name, _ := entry.Val(dwarf.AttrName).(string)
		switch {
		case entry.Tag == dwarf.TagStructType && structs[name]:
			show(data, entry, name)
		case entry.Tag == dwarf.TagConstant && constants[name]:
			fmt.Printf("const %s %v\n", name, entry.Val(dwarf.AttrConstValue))
		case entry.Tag == dwarf.TagVariable && variables[name]:
			if location, ok := entry.Val(dwarf.AttrLocation).([]byte); ok && len(location) == 9 {
				offset, _ := entry.Val(dwarf.AttrType).(dwarf.Offset)
				of, err := data.Type(offset)
				if err == nil {
					if name == "runtime.waitReasonStrings" {
						reasons(file, file.ByteOrder.Uint64(location[1:]), of.Size()/16)
					}
					fmt.Printf("var %s %#x %d %s\n", name, file.ByteOrder.Uint64(location[1:]), of.Size(), of.String())
				}
			}
		}
	}
}

func show(data *dwarf.Data, entry *dwarf.Entry, name string) {
	of, err := data.Type(entry.Offset)
	if err != nil {
		return
	}
	shape := of.(*dwarf.StructType)
	fmt.Printf("size %s %d\n", name, shape.ByteSize)
	for _, field := range shape.Field {
		fmt.Printf("field %s.%s %d %d\n", name, field.Name, field.ByteOffset, field.Type.Size())
	}
}

// reasons prints the array of strings at an address.
func reasons(file *elf.File, address uint64, count int64) {
	table := bytes(file, address, 16*count)
	for i := int64(0); i < count; i++ {
		text, length := file.ByteOrder.Uint64(table[16*i:]), file.ByteOrder.Uint64(table[16*i+8:])
		fmt.Printf("reason %d %s\n", i, bytes(file, text, int64(length)))
	}
}

// bytes reads what the file holds for an address.
func bytes(file *elf.File, address uint64, length int64) []byte {
	data := make([]byte, length)
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_LOAD && address >= segment.Vaddr && address < segment.Vaddr+segment.Filesz {
			segment.ReadAt(data, int64(address-segment.Vaddr))
		}
	}
	return data
}
