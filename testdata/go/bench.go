// Proves the Go walker: methods, generics, closures, deep recursion, goroutines and channels,
// maps, sorting, strings. Prints one checksum; argv[1] multiplies the work (about 1 s).
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
)

type dice struct{ state uint64 }

func (d *dice) roll(sides uint64) uint64 {
	d.state ^= d.state << 13
	d.state ^= d.state >> 7
	d.state ^= d.state << 17
	return (d.state >> 32) % sides
}

type shape interface{ area() float64 }

type circle struct{ radius float64 }
type square struct{ side float64 }

//go:noinline
func (c *circle) area() float64 {
	sum := 0.0
	for slice := 1; slice < 100; slice++ {
		sum += c.radius * c.radius / float64(slice)
	}
	return sum
}

//go:noinline
func (s square) area() float64 { return s.side * s.side }

//go:noinline
func sumBy[T any](items []T, measure func(T) float64) float64 {
	sum := 0.0
	for _, item := range items {
		sum += measure(item)
	}
	return sum
}

//go:noinline
func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

//go:noinline
func descend(depth int) int {
	if depth == 0 {
		return fib(18)
	}
	return descend(depth-1)*3 + depth
}

//go:noinline
func countWords(text string) map[string]int {
	counts := map[string]int{}
	for _, word := range strings.Fields(text) {
		counts[strings.ToUpper(word)]++
	}
	return counts
}

//go:noinline
func sortedCounts(counts map[string]int) []string {
	words := make([]string, 0, len(counts))
	for word := range counts {
		words = append(words, word)
	}
	sort.Slice(words, func(i, j int) bool {
		a, b := counts[words[i]], counts[words[j]]
		return a > b || a == b && words[i] < words[j]
	})
	return words
}

// worker answers each job with a slow hash of it, on its own goroutine.
func worker(jobs <-chan uint32, results chan<- uint32, done *sync.WaitGroup) {
	defer done.Done()
	for job := range jobs {
		results <- slowHash(job)
	}
}

//go:noinline
func slowHash(value uint32) uint32 {
	for i := 0; i < 2000; i++ {
		value = (value ^ value>>15) * 2654435761
	}
	return value
}

//go:noinline
func farmOut(count int) uint32 {
	jobs, results := make(chan uint32), make(chan uint32, 16)
	var workers sync.WaitGroup
	for i := 0; i < 4; i++ {
		workers.Add(1)
		go worker(jobs, results, &workers)
	}
	go func() {
		for i := 0; i < count; i++ {
			jobs <- uint32(i)
		}
		close(jobs)
		workers.Wait()
		close(results)
	}()
	sum := uint32(0)
	for result := range results {
		sum += result
	}
	return sum
}

func main() {
	multiplier := 1
	if len(os.Args) > 1 {
		multiplier, _ = strconv.Atoi(os.Args[1])
	}
	d := &dice{88172645463325252}
	var text strings.Builder
	for i := 0; i < 10000; i++ {
		fmt.Fprintf(&text, "word%d ", d.roll(500))
	}
	checksum := uint64(0)
	for round := 0; round < 40*multiplier; round++ {
		shapes := []shape{}
		for i := 0; i < 5000; i++ {
			if d.roll(2) == 0 {
				shapes = append(shapes, &circle{float64(d.roll(100))})
			} else {
				shapes = append(shapes, square{float64(d.roll(100))})
			}
		}
		checksum += uint64(sumBy(shapes, func(s shape) float64 { return s.area() }))
		for _, word := range sortedCounts(countWords(text.String())) {
			checksum = checksum*31 + uint64(len(word))
		}
		checksum += uint64(farmOut(1000)) + uint64(descend(200)) + uint64(fib(24))
	}
	fmt.Printf("bench %016x\n", checksum)
}
