// Proves that a profile survives every way of ending: argv[1] says which, after about 0.2 s of
// work: unreachable, oob, div0, overflow, exit N, abort.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int zero = 0;

__attribute__((noinline)) static uint64_t work(uint64_t state) {
    for (int i = 0; i < 80000000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

__attribute__((noinline)) static int overflow(int depth) {
    volatile char room[64];
    room[depth % 64] = (char)depth;
    return overflow(depth + 1) + room[(depth + 1) % 64];
}

__attribute__((noinline)) static void end(const char *how, const char *detail) {
    if (strcmp(how, "unreachable") == 0) {
        __builtin_trap();
    } else if (strcmp(how, "oob") == 0) {
        *(volatile uint32_t *)(0xfffffff0u + (uint32_t)zero) = 1;
    } else if (strcmp(how, "div0") == 0) {
        // The compiler may treat a C division by zero as never happening, so ask for the instruction.
        int quotient;
        __asm__ volatile("local.get %1\n\tlocal.get %2\n\ti32.div_s\n\tlocal.set %0"
                         : "=r"(quotient) : "r"(7), "r"(zero));
        printf("%d\n", quotient);
    } else if (strcmp(how, "overflow") == 0) {
        printf("%d\n", overflow(0));
    } else if (strcmp(how, "exit") == 0) {
        exit(detail ? atoi(detail) : 0);
    } else if (strcmp(how, "abort") == 0) {
        abort();
    }
}

int main(int argc, char **argv) {
    printf("traps %016llx\n", (unsigned long long)work(1));
    fflush(stdout);
    if (argc > 1) {
        end(argv[1], argc > 2 ? argv[2] : NULL);
    }
    printf("ended normally\n");
    return 0;
}
