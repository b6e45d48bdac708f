// Proves stacks of functions that the host calls: a reactor, to be run with --invoke work N (N times a few milliseconds).
package main

//go:noinline
func hash(value uint32) uint32 {
	for i := 0; i < 300000; i++ {
		value = (value ^ value>>15) * 2654435761
	}
	return value
}

//go:wasmexport work
func work(times int32) int32 {
	done := make(chan uint32)
	go func() {
		sum := uint32(1)
		for i := int32(0); i < times/10; i++ {
			sum = hash(sum)
		}
		done <- sum
	}()
	sum := <-done
	for i := int32(0); i < times; i++ {
		sum = hash(sum)
	}
	return int32(sum)
}

func main() {}
