// Proves that samples find the goroutine that runs: eight labelled workers that hand each other work over channels,
// each resumed by the scheduler thousands of times and busy in functions of its own name, with a collector behind them.
// Prints one checksum; argv[1] multiplies the work (about 1 s).
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
)

type node struct {
	left, right *node
	value       uint32
}

//go:noinline
func grow(depth int, value uint32) *node {
	if depth == 0 {
		return &node{value: value}
	}
	return &node{grow(depth-1, value*3), grow(depth-1, value*5), value}
}

//go:noinline
func (n *node) fold() uint32 {
	if n == nil {
		return 1
	}
	return n.left.fold()*31 + n.right.fold()*17 + n.value
}

//go:noinline
func hash(value uint32) uint32 {
	for i := 0; i < 3000; i++ {
		value = (value ^ value>>13) * 2246822519
	}
	return value
}

//go:noinline
func digits(value uint32) uint32 {
	counts := map[rune]uint32{}
	for i := uint32(0); i < 20; i++ {
		for _, digit := range strconv.FormatUint(uint64(value+i), 10) {
			counts[digit]++
		}
	}
	return value + counts['7']
}

//go:noinline
func trees(value uint32) uint32 { return grow(7, value).fold() }

func stage(work func(uint32) uint32, in <-chan uint32, out chan<- uint32) {
	for value := range in {
		out <- work(value)
	}
	close(out)
}

func main() {
	multiplier := 1
	if len(os.Args) > 1 {
		multiplier, _ = strconv.Atoi(os.Args[1])
	}
	names := []string{"hash", "digits", "trees"}
	work := map[string]func(uint32) uint32{"hash": hash, "digits": digits, "trees": trees}
	source := make(chan uint32)
	in := (<-chan uint32)(source)
	for i := 0; i < 8; i++ {
		name, from, to := names[i%3], in, make(chan uint32, i%3)
		go pprof.Do(context.Background(), pprof.Labels("stage", name), func(context.Context) {
			stage(work[name], from, to)
		})
		in = to
	}
	go func() {
		for i := 0; i < 3000*multiplier; i++ {
			source <- uint32(i)
		}
		close(source)
	}()
	var once sync.Once
	checksum := uint32(0)
	for value := range in {
		once.Do(func() { checksum = 7 })
		checksum = checksum*16777619 ^ value
	}
	fmt.Printf("goroutines %08x\n", checksum)
}
