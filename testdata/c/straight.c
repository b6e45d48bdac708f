// Proves that code without loops or calls is sampled too: ten functions of 320 dependent
// operations each, equal in cost, called in turn. The truth is 10 % each.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP(k) \
    x ^= x << 13; x += (k); x ^= x >> 7; x *= 0x9e3779b97f4a7c15u;
#define STEPS_8(k) \
    STEP(k) STEP(k + 1) STEP(k + 2) STEP(k + 3) STEP(k + 4) STEP(k + 5) STEP(k + 6) STEP(k + 7)
#define STEPS_80(k)                                                                     \
    STEPS_8(k) STEPS_8(k + 8) STEPS_8(k + 16) STEPS_8(k + 24) STEPS_8(k + 32)            \
    STEPS_8(k + 40) STEPS_8(k + 48) STEPS_8(k + 56) STEPS_8(k + 64) STEPS_8(k + 72)

// Constants of the same size everywhere, so that all ten compile to the same instructions.
#define STRAIGHT(n)                                                              \
    __attribute__((noinline)) static uint64_t straight_##n(uint64_t x) {         \
        STEPS_80(10000 + 100 * n)                                                \
        return x;                                                                \
    }

STRAIGHT(0) STRAIGHT(1) STRAIGHT(2) STRAIGHT(3) STRAIGHT(4)
STRAIGHT(5) STRAIGHT(6) STRAIGHT(7) STRAIGHT(8) STRAIGHT(9)

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t x = 1;
    for (int64_t round = 0; round < 320000LL * multiplier; round++) {
        x = straight_0(x);
        x = straight_1(x);
        x = straight_2(x);
        x = straight_3(x);
        x = straight_4(x);
        x = straight_5(x);
        x = straight_6(x);
        x = straight_7(x);
        x = straight_8(x);
        x = straight_9(x);
    }
    printf("straight %016llx\n", (unsigned long long)x);
    return 0;
}
