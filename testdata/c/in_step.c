// Proves that guests in step with the clock are seen evenly: of each period of so many microseconds the first half is `first`'s, the
// second half `second`'s. Prints what part of the work was `first`'s, which is its share of the time.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint32_t state;

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

#define WORKER(name)                                                        \
    __attribute__((noinline)) static uint64_t name(uint64_t until_ns) {     \
        uint64_t rounds = 0;                                                \
        do {                                                                \
            for (int i = 0; i < 4000; i++) state = state * 1664525u + 1013904223u; \
            rounds++;                                                       \
        } while (now_ns() < until_ns);                                      \
        return rounds;                                                      \
    }

WORKER(first)
WORKER(second)

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    uint64_t period_ns = strtoull(argv[1], 0, 10) * 1000;
    uint64_t end_ns = now_ns() + strtoull(argv[2], 0, 10) * 1000000;
    uint64_t firsts = 0, seconds = 0;
    while (now_ns() < end_ns) {
        uint64_t begin_ns = now_ns() / period_ns * period_ns;
        firsts += first(begin_ns + period_ns / 2);
        seconds += second(begin_ns + period_ns);
    }
    printf("%.6f\n", (double)firsts / (firsts + seconds));
}
