// Proves that time stays where it was spent if a guest does one thing for long, and then another: `first` works for about
// a second, then `second` does. Before each, and after both, the guest waits for a line; whoever writes it can look at the
// guest meanwhile. It says how long each of the two took by its own clock, in nanoseconds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// The iteration count comes in through memory the compiler cannot see through, and each step needs the one before.
static volatile uint32_t iterations = 1000;

__attribute__((noinline)) static uint64_t first(uint64_t state, int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++) {
        uint32_t end = iterations;
        for (uint32_t i = 0; i < end; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    return state;
}

__attribute__((noinline)) static uint64_t second(uint64_t state, int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++) {
        uint32_t end = iterations;
        for (uint32_t i = 0; i < end; i++) {
            state ^= state << 5;
            state += state >> 3;
            state ^= state << 11;
        }
    }
    return state;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Says how long it took since `began`, and waits for a line. Returns the time then.
static int64_t pause_since(int64_t began) {
    printf("%lld\n", (long long)(now_ns() - began));
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar());
    return now_ns();
}

int main(int argc, char **argv) {
    int64_t rounds = 400000LL * (argc > 1 ? atoi(argv[1]) : 1);
    int64_t began = pause_since(now_ns());
    uint64_t state = first(88172645463325252u, rounds);
    began = pause_since(began);
    state = second(state, rounds);
    pause_since(began);
    printf("phases %016llx\n", (unsigned long long)state);
    return 0;
}
