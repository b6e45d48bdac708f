// Proves that time is shared out rightly between two functions: `heavy` runs the same loop body
// as `light`, three times as often, in calls that alternate. The truth is 75 % to 25 %.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The iteration count comes in through memory the compiler cannot see through, so both loops stay
// loops of the same shape. The step waits for its multiplications: where the code lies costs nothing.
static volatile uint32_t light_iterations = 1000;

#define WORKER(name, times)                                                 \
    __attribute__((noinline)) static uint64_t name(uint64_t state) {        \
        uint32_t iterations = light_iterations * (times);                   \
        for (uint32_t i = 0; i < iterations; i++) {                         \
            state = (state ^ state << 13) * 0x9e3779b97f4a7c15;             \
            state = (state ^ state >> 7) * 0xbf58476d1ce4e5b9;              \
            state = (state ^ state << 17) * 0x94d049bb133111eb;             \
        }                                                                   \
        return state;                                                       \
    }

WORKER(light, 1)
WORKER(heavy, 3)

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t state = 88172645463325252u;
    for (int64_t round = 0; round < 45000LL * multiplier; round++) {
        state = heavy(state);
        state = light(state);
    }
    printf("shares %016llx\n", (unsigned long long)state);
    return 0;
}
