// Proves the Go walker frame by frame: at every checkpoint the program prints the stack that Go's own runtime sees,
// "function file:line" from the checkpoint's caller on, and whoever runs it compares that with its own walk at the same
// moment, a write to standard output. Deterministic but for goroutine numbers.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sort"
	"strings"
	"sync"
	"time"
)

// checkpoint prints "@ name goroutine N" and the stack.
//
//go:noinline
func checkpoint(name string) {
	var text strings.Builder
	number := strings.Fields(string(debug.Stack()))[1]
	fmt.Fprintf(&text, "@ %s goroutine %s\n", name, number)
	pcs := make([]uintptr, 4096)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&text, "%s %s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			break
		}
	}
	os.Stdout.WriteString(text.String())
}

//go:noinline
func descend(depth int) int {
	if depth == 0 {
		checkpoint("deep")
		return 0
	}
	return descend(depth-1) + 1
}

//go:noinline
func bigFrame(n int) int {
	var table [4096]int
	for i := range table {
		table[i] = i * n
	}
	checkpoint("big frame, grown stack")
	return table[n%len(table)]
}

type shape interface{ area(scale int) int }

type square struct{ side int }

//go:noinline
func (s square) area(scale int) int {
	checkpoint("method through an interface")
	return s.side * s.side * scale
}

type counter struct{ count int }

//go:noinline
func (c *counter) add(n int) {
	c.count += n
	checkpoint("method value")
}

type number interface{ ~int | ~float64 }

//go:noinline
func sum[T number](items []T) T {
	var total T
	for _, item := range items {
		total += item
	}
	checkpoint("generic")
	return total
}

type list[T any] struct{ items []T }

//go:noinline
func (l *list[T]) each(visit func(T)) {
	for _, item := range l.items {
		visit(item)
	}
}

type embedded struct{ shape }

//go:noinline
func closures() func() {
	outer := 1
	return func() {
		inner := func() {
			outer++
			checkpoint("closure in a closure")
		}
		inner()
	}
}

//go:noinline
func deferred() (result string) {
	defer func() {
		if problem := recover(); problem != nil {
			checkpoint("recovering")
			result = fmt.Sprint(problem)
		}
	}()
	defer checkpoint("deferred, panicking")
	panics(nil)
	return "not reached"
}

//go:noinline
func panics(pointer *counter) {
	pointer.count++
}

//go:noinline
func divides(by int) (result int) {
	defer func() {
		recover()
		checkpoint("recovering from a division")
	}()
	return 1 / by
}

//go:noinline
func defers() {
	defer checkpoint("deferred")
	for i := 0; i < 2; i++ {
		defer func(i int) { checkpoint("deferred in a loop") }(i)
	}
}

//go:noinline
func sorts() {
	items := []int{3, 1, 2}
	first := true
	sort.Slice(items, func(i, j int) bool {
		if first {
			first = false
			checkpoint("called back by sort")
		}
		return items[i] < items[j]
	})
}

//go:noinline
func blocked(in <-chan int, out chan<- int) {
	for value := range in {
		if value == 3 {
			checkpoint("resumed by a channel")
		}
		out <- value * 2
	}
	close(out)
}

//go:noinline
func selects(a, b <-chan int, quit <-chan struct{}) {
	for {
		select {
		case <-a:
		case <-b:
			checkpoint("resumed by a select")
		case <-quit:
			return
		}
	}
}

//go:noinline
func goroutines() {
	in, out := make(chan int), make(chan int)
	go blocked(in, out)
	for i := 0; i < 5; i++ {
		in <- i
		<-out
	}
	close(in)
	a, b, quit := make(chan int), make(chan int), make(chan struct{})
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		selects(a, b, quit)
	}()
	a <- 1
	b <- 1
	close(quit)
	group.Wait()
	var lock sync.Mutex
	lock.Lock()
	group.Add(1)
	go func() {
		defer group.Done()
		lock.Lock()
		checkpoint("resumed by a mutex")
		lock.Unlock()
	}()
	runtime.Gosched()
	lock.Unlock()
	group.Wait()
	time.Sleep(time.Millisecond)
	checkpoint("resumed by a timer")
}

//go:noinline
func labelled() {
	labels := pprof.Labels("request", "42", "user", "ada")
	pprof.Do(context.Background(), labels, func(context.Context) { checkpoint("labelled") })
}

func main() {
	checkpoint("main")
	descend(1000)
	total := bigFrame(7)
	var some shape = square{3}
	total += some.area(2)
	total += embedded{some}.area(1)
	c := &counter{}
	add := c.add
	add(1)
	total += sum([]int{1, 2}) + int(sum([]float64{1, 2}))
	(&list[string]{[]string{"x"}}).each(func(string) { checkpoint("generic method") })
	closures()()
	total += inlinedOuter(total)
	fmt.Println(deferred())
	total += divides(total - total)
	defers()
	sorts()
	goroutines()
	labelled()
	runtime.GC()
	debug.FreeOSMemory()
	checkpoint("after a collection")
	parked()
	fmt.Println("stacks", total, c.count)
}
