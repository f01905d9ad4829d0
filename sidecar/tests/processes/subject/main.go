// A process to be looked at from outside. It says "ready" when what its arguments ask for is done, and ends when its input does.
//
//	subject                  nothing
//	subject maps N           N mappings that the kernel cannot put together
//	subject exec PROGRAM...  becomes another program at the first line of its input
//	subject publish          publishes each line of its input, in hexadecimal, as its process context, and says "done"; what
//	                         comes behind "header " is written over the header as it is
//	subject hang             has a process context of which each read waits until this process ends
//	subject alternate A B    publishes A and B in turn, as fast as it can
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

func main() {
	input := bufio.NewReader(os.Stdin)
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "maps":
			n, _ := strconv.Atoi(os.Args[2])
			for i := 0; i < n; i++ {
				if _, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|(i%2)*syscall.PROT_EXEC, syscall.MAP_ANON|syscall.MAP_PRIVATE); err != nil {
					fmt.Println("refused after", i, err)
					os.Exit(1)
				}
			}
		case "exec":
			fmt.Println("ready")
			input.ReadString('\n')
			err := syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
			fmt.Println("exec", err)
			os.Exit(1)
		case "publish":
			area := context(false)
			fmt.Println("ready")
			for {
				line, err := input.ReadString('\n')
				if err != nil {
					return
				}
				header, isHeader := strings.CutPrefix(strings.TrimSpace(line), "header ")
				bytes, _ := hex.DecodeString(header)
				if isHeader {
					copy(area, bytes)
				} else {
					publish(area, bytes)
				}
				fmt.Println("done")
			}
		case "hang":
			hang(context(true))
		case "alternate":
			area := context(false)
			a, _ := hex.DecodeString(os.Args[2])
			b, _ := hex.DecodeString(os.Args[3])
			publish(area, a)
			go func() {
				for {
					// Twice each, so that each place has both in turn.
					publish(area, b)
					publish(area, b)
					publish(area, a)
					publish(area, a)
				}
			}()
		}
	}
	known := []byte("what is known to lie here")
	fmt.Println("ready", uintptr(unsafe.Pointer(&known[0])))
	input.ReadString('\n')
	_ = known[0]
}

// A mapping of a memfd of the name that readers look for. Source: OTEP 4719, "Publication Protocol".
func context(untouched bool) []byte {
	name := append([]byte("OTEL_CTX"), 0)
	fd, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	if errno != 0 || syscall.Ftruncate(int(fd), 3*room) != nil {
		panic(errno)
	}
	area, err := syscall.Mmap(int(fd), 0, 3*room, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	if untouched {
		return area
	}
	copy(area, "OTEL_CTX\x02\x00\x00\x00")
	return area
}

const room = 64 << 10

var published uint64

// Two places in turn, so that the one in force stays. Source: OTEP 4719, "Updating Protocol".
func publish(area, payload []byte) {
	published++
	at := room * int(1+published%2)
	copy(area[at:at+room], payload)
	time := (*uint64)(unsafe.Pointer(&area[16]))
	atomic.StoreUint64(time, 0)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&area[12])), uint32(len(payload)))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&area[24])), uint64(uintptr(unsafe.Pointer(&area[at]))))
	atomic.StoreUint64(time, published)
}

// Registers memory that nobody ever fills. Source: userfaultfd(2), ioctl_userfaultfd(2).
func hang(area []byte) {
	fd, _, errno := syscall.Syscall(userfaultfd, syscall.O_CLOEXEC, 0, 0)
	if errno != 0 {
		fmt.Println("refused", errno)
		os.Exit(1)
	}
	api := [3]uint64{0xaa}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, 0xc018aa3f, uintptr(unsafe.Pointer(&api))); errno != 0 {
		panic(errno)
	}
	register := [4]uint64{uint64(uintptr(unsafe.Pointer(&area[0]))), uint64(len(area)), 1}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, 0xc020aa00, uintptr(unsafe.Pointer(&register))); errno != 0 {
		panic(errno)
	}
}
