// Functions that the compiler inlines into each other, across files.
package main

func inlinedOuter(n int) int {
	if n < 0 {
		return 0
	}
	return inlinedMiddle(n+1) + 1
}

func inlinedMiddle(n int) int {
	return inlinedInner(n*2) - 1
}

func inlinedInner(n int) int {
	checkpoint("inlined")
	return n ^ 1
}
