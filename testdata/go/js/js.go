// Proves that Go for GOOS=js is told apart from Go for GOOS=wasip1: its imports are a browser's, and wlprof cannot run
// it. Would print a checksum.
package main

func main() {
	sum := 0
	for i := 0; i < 1000; i++ {
		sum += i * i
	}
	println("checksum", sum)
}
