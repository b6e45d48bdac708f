// Goroutines that wait in every way there is, for the list of all of them.
package main

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

type waiter struct{ signal chan int }

//go:noinline
func (w *waiter) wait() { <-w.signal }

//go:noinline
func deepInside(depth int, then func()) int {
	if depth == 0 {
		then()
		return 0
	}
	return deepInside(depth-1, then) + 1
}

// parked starts goroutines, lets them come to where they wait, and prints "@@ all" and the runtime's list of them.
//
//go:noinline
func parked() {
	never := make(chan int)
	full := make(chan int, 1)
	full <- 1
	var lock sync.Mutex
	lock.Lock()
	var shared sync.RWMutex
	shared.Lock()
	var group sync.WaitGroup
	group.Add(1)
	condition := sync.NewCond(&sync.Mutex{})
	ways := []func(){
		func() { <-never },
		func() { full <- 2 },
		func() { var none chan int; <-none },
		func() {
			select {
			case <-never:
			case full <- 3:
			}
		},
		func() { select {} },
		func() { lock.Lock() },
		func() { shared.RLock() },
		func() { group.Wait() },
		func() { condition.L.Lock(); condition.Wait() },
		func() { time.Sleep(time.Hour) },
		func() { <-time.After(time.Hour) },
		func() { deepInside(100, func() { <-never }) },
		func() {
			pprof.Do(context.Background(), pprof.Labels("job", "7"), func(context.Context) { <-never })
		},
		func() {
			for {
				runtime.Gosched()
			}
		},
	}
	for _, way := range ways {
		go way()
	}
	go (&waiter{never}).wait()
	for range ways {
		time.Sleep(time.Millisecond)
	}
	go deepInside(1, func() {})
	text := make([]byte, 1<<16)
	os.Stdout.WriteString("@@ all\n" + string(text[:runtime.Stack(text, true)]) + "\n")
}
