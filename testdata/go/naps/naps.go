// Proves that Go's scheduler waits for the goroutine whose sleep ends first, in each release. long and short begin to sleep at
// once, main waits for both; the guest says at last how long, by its own clock and in nanoseconds, it waited for short's end,
// and how long from there for long's.
package main

import (
	"fmt"
	"time"
)

//go:noinline
func long(done chan<- time.Time) {
	time.Sleep(800 * time.Millisecond) // sleeps longer
	done <- time.Now()
}

//go:noinline
func short(done chan<- time.Time) {
	time.Sleep(300 * time.Millisecond) // sleeps
	done <- time.Now()
}

func main() {
	longDone, shortDone := make(chan time.Time), make(chan time.Time)
	began := time.Now()
	go long(longDone)
	go short(shortDone)
	first := <-shortDone
	last := <-longDone
	fmt.Printf("short %d\nlong %d\n", first.Sub(began), last.Sub(first))
}
