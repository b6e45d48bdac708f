// Proves host time and libcalls: one named function for each way of leaving wasm code, namely
// clock, output, sleep (200 ms in all), randomness, memory.copy/fill, and memory.grow.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static int ask_the_clock(int times) {
    int ordered = 1;
    struct timespec before = {0, 0};
    for (int i = 0; i < times; i++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        ordered &= now.tv_sec > before.tv_sec ||
                   (now.tv_sec == before.tv_sec && now.tv_nsec >= before.tv_nsec);
        before = now;
    }
    return ordered;
}

__attribute__((noinline)) static int write_lines(int times) {
    int written = 0;
    for (int i = 0; i < times; i++) {
        written += (int)write(STDOUT_FILENO, "hosty line\n", 11);
    }
    return written;
}

__attribute__((noinline)) static void sleep_a_while(int times) {
    for (int i = 0; i < times; i++) {
        struct timespec pause = {0, 20 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
}

__attribute__((noinline)) static int draw_random(int times) {
    int drawn = 0;
    unsigned char bytes[256];
    for (int i = 0; i < times; i++) {
        drawn += getentropy(bytes, sizeof bytes) == 0 ? (int)sizeof bytes : 0;
    }
    return drawn;
}

enum { BLOCK = 8 << 20 };

__attribute__((noinline)) static unsigned copy_blocks(char *to, const char *from, int times) {
    unsigned sum = 0;
    for (int i = 0; i < times; i++) {
        memcpy(to, from, BLOCK);
        sum += (unsigned char)*(volatile char *)(to + i);
    }
    return sum;
}

__attribute__((noinline)) static unsigned fill_blocks(char *to, int times) {
    unsigned sum = 0;
    for (int i = 0; i < times; i++) {
        memset(to, i, BLOCK);
        sum += (unsigned char)*(volatile char *)(to + i);
    }
    return sum;
}

// Never freed, so that each allocation has to grow the memory.
__attribute__((noinline)) static int grow_memory(int times) {
    int got = 0;
    for (int i = 0; i < times; i++) {
        volatile char *block = malloc(4 << 20);
        if (block) {
            block[0] = 1;
            got += block[0];
        }
    }
    return got;
}

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    char *from = calloc(1, BLOCK), *to = calloc(1, BLOCK);
    int ordered = ask_the_clock(400000 * multiplier);
    int written = write_lines(200 * multiplier);
    sleep_a_while(10);
    int drawn = draw_random(20000 * multiplier);
    unsigned filled = fill_blocks(from, 100 * multiplier);
    unsigned copied = copy_blocks(to, from, 100 * multiplier);
    int grown = grow_memory(32);
    printf("hosty ordered=%d written=%d drawn=%d filled=%u copied=%u grown=%d\n",
           ordered, written, drawn, filled, copied, grown);
    return 0;
}
