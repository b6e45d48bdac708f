// Proves that the error bounds of shares are honest. The callers `seven`, `twenty_three` and `seventy` call the same `work`
// for 7, 23 and 70 of 100 calls, in an order that is random and the same in every run: the shares of the time are known, and
// each is seen as independently of the one before as chance would have it. A long regular phase would be seen more evenly.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 100

// The iteration count comes in through memory the compiler cannot see through, and each step needs the one before.
static volatile uint32_t iterations = 1500;

__attribute__((noinline)) static uint64_t work(uint64_t state) {
    uint32_t end = iterations;
    for (uint32_t i = 0; i < end; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

// No tail calls: the caller is to be on the stack.
__attribute__((noinline)) static uint64_t seven(uint64_t state) { return work(state) + 1; }
__attribute__((noinline)) static uint64_t twenty_three(uint64_t state) { return work(state) + 2; }
__attribute__((noinline)) static uint64_t seventy(uint64_t state) { return work(state) + 3; }

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_below(uint32_t end) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 33) % end);
}

// One seed for each argument that follows the first: shuffles differ, work does not.
int main(int argc, char **argv) {
    int rounds = 1000 * (argc > 1 ? atoi(argv[1]) : 1);
    for (int i = 0; argc > 2 && i < 1 + atoi(argv[2]); i++) random_below(2);
    uint8_t calls[CALLS];
    for (int i = 0; i < CALLS; i++) calls[i] = i < 7 ? 0 : i < 30 ? 1 : 2;
    uint64_t state = 88172645463325252u;
    for (int round = 0; round < rounds; round++) {
        for (uint32_t i = CALLS - 1; i > 0; i--) {
            uint32_t other = random_below(i + 1);
            uint8_t call = calls[i];
            calls[i] = calls[other];
            calls[other] = call;
        }
        for (int i = 0; i < CALLS; i++) {
            state = calls[i] == 0 ? seven(state) : calls[i] == 1 ? twenty_three(state) : seventy(state);
        }
    }
    printf("random %016llx\n", (unsigned long long)state);
    return 0;
}
