// The call-heavy bench target: naive Fibonacci, and small functions called through a table.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static uint32_t fib(uint32_t n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

typedef uint32_t (*operation)(uint32_t, uint32_t);
static uint32_t add(uint32_t a, uint32_t b) { return a + b; }
static uint32_t subtract(uint32_t a, uint32_t b) { return a - b; }
static uint32_t multiply(uint32_t a, uint32_t b) { return a * (b | 1); }
static uint32_t exclusive_or(uint32_t a, uint32_t b) { return a ^ b; }

// Volatile, so that the calls stay indirect.
static volatile operation operations[] = {add, subtract, multiply, exclusive_or};

__attribute__((noinline)) static uint32_t through_table(uint32_t value, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) {
        value = operations[(i ^ (i >> 2)) & 3](value, i);
    }
    return value;
}

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    uint32_t value = 1;
    for (int round = 0; round < 20 * multiplier; round++) {
        value += fib(31);
        value = through_table(value, 15000000);
    }
    printf("calls %08x\n", value);
    return 0;
}
