// Proves deep stacks: `descend` recurses to argv[1] frames (5000 unless told), works a little at
// the bottom, unwinds, and does it again argv[2] times.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static uint64_t bottom(uint64_t state) {
    for (int i = 0; i < 200000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

// The result is used after the call returns, so this cannot become a loop.
__attribute__((noinline)) static uint64_t descend(int depth, uint64_t state) {
    if (depth <= 1) {
        return bottom(state);
    }
    uint64_t below = descend(depth - 1, state + (uint64_t)depth);
    return (below << 1 | below >> 63) ^ state;
}

int main(int argc, char **argv) {
    int depth = argc > 1 ? atoi(argv[1]) : 5000;
    int rounds = argc > 2 ? atoi(argv[2]) : 1500;
    uint64_t state = 1;
    for (int round = 0; round < rounds; round++) {
        state = descend(depth, state | 1);
    }
    printf("deep %016llx\n", (unsigned long long)state);
    return 0;
}
