// Proves Go stacks at arbitrary instructions in the four kinds of work that treat them most differently, and known
// shares: argv[1] is split, channels, garbage, recursion or sleep, argv[2] multiplies the work (about half a second).
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mix is the loop of heavy and of light: two loops would take unequal time by where their code lies, on some processors and beside
// some neighbours.
//
//go:noinline
func mix(value uint32, turns int) uint32 {
	for i := 0; i < turns; i++ {
		value = (value^value>>15)*2654435761 + value<<7 ^ value>>3 + value*31 ^ value<<11 + value>>5 // hot
	}
	return value
}

//go:noinline
func heavy(value uint32) uint32 {
	return mix(value, 3000)
}

//go:noinline
func light(value uint32) uint32 {
	return mix(value, 1000)
}

// split spends three quarters of its time in heavy and one in light, in turns of microseconds: what else the machine does
// meanwhile hits both alike.
func split(times int) (sum uint32) {
	for i := 0; i < 10000*times; i++ {
		sum = light(heavy(sum))
	}
	return sum
}

//go:noinline
func relay(in <-chan uint32, out chan<- uint32) {
	for value := range in {
		out <- value*31 + 7
	}
	close(out)
}

// channels passes values along goroutines, unbuffered and buffered, and through a select.
func channels(times int) (sum uint32) {
	first := make(chan uint32)
	last := first
	for i := 0; i < 20; i++ {
		next := make(chan uint32, i%3)
		go relay(last, next)
		last = next
	}
	quit := make(chan struct{})
	go func() {
		for i := 0; i < 3000*times; i++ {
			select {
			case first <- uint32(i):
			case <-quit:
			}
		}
		close(first)
	}()
	var lock sync.Mutex
	for value := range last {
		lock.Lock()
		sum = sum*16777619 ^ value
		lock.Unlock()
	}
	return sum
}

type tree struct {
	children [2]*tree
	name     string
	tags     map[string]int
}

//go:noinline
func plant(depth int) *tree {
	t := &tree{name: "node " + strconv.Itoa(depth)}
	if depth > 0 {
		t.children = [2]*tree{plant(depth - 1), plant(depth - 1)}
	}
	if depth%4 == 0 {
		t.tags = map[string]int{t.name: depth, "depth": depth}
	}
	return t
}

//go:noinline
func (t *tree) count() uint32 {
	if t == nil {
		return 0
	}
	return 1 + t.children[0].count() + t.children[1].count() + uint32(len(t.tags)+len(t.name))
}

// garbage makes the collector work: small objects, maps, strings, and large slices that are copied.
func garbage(times int) (sum uint32) {
	for i := 0; i < 12*times; i++ {
		sum += plant(10).count()
		sum += uint32(len(strings.Repeat("0123456789", 20000)))
		large := make([]byte, 1<<20)
		sum += uint32(copy(large[1<<19:], large))
		if i%8 == 0 {
			runtime.GC()
		}
	}
	return sum
}

//go:noinline
func descend(depth int, padding [8]uint64) uint64 {
	if depth == 0 {
		return padding[3] + 1
	}
	padding[depth%8] += uint64(depth)
	return descend(depth-1, padding) + padding[0]
}

// recursion grows goroutine stacks from nothing, again and again.
func recursion(times int) (sum uint32) {
	for i := 0; i < 150*times; i++ {
		result := make(chan uint64)
		go func() { result <- descend(100+i%900, [8]uint64{}) }()
		sum = sum*31 + uint32(<-result)
	}
	return sum
}

// sleep waits for an hour, so that nothing runs.
func sleep(times int) uint32 {
	time.Sleep(time.Hour)
	return uint32(times)
}

func main() {
	kinds := map[string]func(int) uint32{
		"split": split, "channels": channels, "garbage": garbage, "recursion": recursion, "sleep": sleep,
	}
	times := 1
	if len(os.Args) > 2 {
		times, _ = strconv.Atoi(os.Args[2])
	}
	fmt.Printf("work %08x\n", kinds[os.Args[1]](times))
}
