// Proves that waiting is told apart, and where it is. `nap` sleeps, `take` reads standard input to its end, `compute` works; the
// guest says "ready" first, and at last how long each took by its own clock, in nanoseconds.
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile uint32_t iterations = 1000;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((noinline)) static void nap(void) {
    usleep(600000); // sleeps
}

__attribute__((noinline)) static long take(void) {
    char buffer[64];
    long all = 0;
    for (;;) {
        long got = read(0, buffer, sizeof buffer); // reads
        if (got <= 0) return all;
        all += got;
    }
}

__attribute__((noinline)) static uint64_t compute(uint64_t state) {
    for (int64_t round = 0; round < 100000; round++) {
        uint32_t end = iterations;
        for (uint32_t i = 0; i < end; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    return state;
}

int main(void) {
    (void)!write(1, "ready\n", 6);
    int64_t began = now_ns();
    long all = take();
    int64_t taken = now_ns();
    uint64_t state = compute(88172645463325252u);
    int64_t computed = now_ns();
    nap();
    int64_t napped = now_ns();
    printf("take %lld\ncompute %lld\nnap %lld\n", (long long)(taken - began), (long long)(computed - taken),
           (long long)(napped - computed));
    printf("waits %ld %016llx\n", all, (unsigned long long)state);
    return 0;
}
