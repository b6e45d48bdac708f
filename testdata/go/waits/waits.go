// Proves that waiting is told apart in Go guests, and where it is. nap sleeps, take reads standard input to its end, compute
// works; the guest says "ready" first, and at last how long each took by its own clock, in nanoseconds.
package main

import (
	"fmt"
	"syscall"
	"time"
)

//go:noinline
func nap() {
	time.Sleep(600 * time.Millisecond) // sleeps
}

//go:noinline
func take() int {
	var buffer [64]byte
	all := 0
	for {
		got, err := syscall.Read(0, buffer[:]) // reads
		if err != nil || got <= 0 {
			return all
		}
		all += got
	}
}

//go:noinline
func compute(state uint64) uint64 {
	for i := 0; i < 60_000_000; i++ {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	return state
}

func main() {
	fmt.Println("ready")
	began := time.Now()
	all := take()
	taken := time.Now()
	state := compute(88172645463325252)
	computed := time.Now()
	nap()
	napped := time.Now()
	fmt.Printf("take %d\ncompute %d\nnap %d\n", taken.Sub(began), computed.Sub(taken), napped.Sub(computed))
	fmt.Printf("waits %d %016x\n", all, state)
}
