// Never ends: says "ready" and works until it is interrupted, for the Ctrl-C tests.
#include <stdint.h>
#include <stdio.h>

static volatile uint64_t result;

__attribute__((noinline)) static uint64_t spin(uint64_t state) {
    for (int i = 0; i < 1000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

int main(void) {
    printf("ready\n");
    fflush(stdout);
    uint64_t state = 1;
    for (;;) {
        state = spin(state);
        result = state;
    }
}
