// Counts what it allocates, by function: blocks and bytes, and what it holds at the end of both. Sizes are size classes of Go's own,
// so that its runtime counts the same. The last line is what the runtime says it has allocated in all. A second argument is the rate that it has
// its runtime sample at.
package main

import (
	"os"
	"runtime"
	"strconv"
)

type node struct {
	next *node
	data [7]int
}

const (
	leaked     = 4096
	churned    = 1024
	large      = 1 << 16
	sizeOfNode = 64
)

var (
	kept [][]byte
	last []byte
	list *node
)

//go:noinline
func leak() { kept = append(kept, make([]byte, leaked)) }

//go:noinline
func churn() { last = make([]byte, churned) }

//go:noinline
func big() { last = make([]byte, large) }

//go:noinline
func link() { list = &node{next: list} }

// Inlined into its caller, on whose line it stands in no profile.
func buffer() []byte { return make([]byte, churned) }

//go:noinline
func caller() { last = buffer() }

func tell(name string, numbers ...uint64) {
	line := name
	for _, number := range numbers {
		line += " " + strconv.FormatUint(number, 10)
	}
	os.Stdout.WriteString(line + "\n")
}

func main() {
	times, _ := strconv.Atoi(os.Args[1])
	if len(os.Args) > 2 {
		// As a program may that profiles itself.
		runtime.MemProfileRate, _ = strconv.Atoi(os.Args[2])
	}
	// What it grows by would be of the function that appends.
	kept = make([][]byte, 0, times)
	for i := 0; i < times; i++ {
		churn()
		caller()
		link()
		if i%10 == 0 {
			leak()
			big()
		}
	}
	last, list = nil, nil
	// What is freed counts when it has been swept.
	runtime.GC()
	runtime.GC()
	n, tenth := uint64(times), uint64((times+9)/10)
	tell("main.churn", n, n*churned, 0, 0)
	tell("main.buffer", n, n*churned, 0, 0)
	tell("main.link", n, n*sizeOfNode, 0, 0)
	tell("main.leak", tenth, tenth*leaked, tenth, tenth*leaked)
	tell("main.big", tenth, tenth*large, 0, 0)
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	tell("TotalAlloc", stats.TotalAlloc, 0, 0, 0)
	runtime.KeepAlive(kept)
}
