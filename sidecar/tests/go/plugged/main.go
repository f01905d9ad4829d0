// A program that loads a plugin and calls it: plugged PLUGIN. It allocates in the plugin, in itself by way of the plugin, and waits in the plugin. To "load" it loads it, and says
// "loaded"; to "write FOLDER" it collects garbage, writes its own profiles there and says "written". It ends at the end of its input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"plugin"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

var kept [][]byte

//go:noinline
func keep() { kept = append(kept, make([]byte, 7000)) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func find[T any](loaded *plugin.Plugin, name string) T {
	symbol, err := loaded.Lookup(name)
	check(err)
	return symbol.(T)
}

func load(path string) {
	loaded, err := plugin.Open(path)
	check(err)
	find[func(int)](loaded, "Fill")(10)
	find[func(func())](loaded, "Through")(keep)
	go find[func(chan bool)](loaded, "Park")(nil)
	time.Sleep(10 * time.Millisecond)
}

func write(folder string) {
	runtime.GC()
	for _, name := range []string{"heap", "goroutine"} {
		file, err := os.Create(filepath.Join(folder, name+".pb.gz"))
		check(err)
		check(pprof.Lookup(name).WriteTo(file, 0))
		check(file.Close())
	}
}

func main() {
	runtime.MemProfileRate = 1
	keep()
	runtime.GC()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "load":
			load(os.Args[1])
			fmt.Println("loaded")
		case "write":
			write(rest)
			fmt.Println("written")
		}
	}
}
