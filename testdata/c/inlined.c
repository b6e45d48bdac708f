// Proves line numbers and inlining: nearly all time is on the line marked HOT, in `mix_cell`,
// inlined into `mix_row`, inlined into `mix_table`; `cold_table` costs about a tenth of it.
// Also built as DWARF 5 (c-inlined-dwarf5) and without optimisation (c-inlined-O0).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 4096 };
static uint32_t table[CELLS];

__attribute__((always_inline)) static inline void mix_cell(uint32_t i, uint32_t key) {
    table[i] = (table[(i * 7 + key) % CELLS] ^ (table[i] + key)) * 2654435761u; // HOT
}

__attribute__((always_inline)) static inline void mix_row(uint32_t start, uint32_t key) {
    for (uint32_t i = start; i < start + 64; i++) {
        mix_cell(i, key);
    }
}

__attribute__((noinline)) static void mix_table(uint32_t key) {
    for (uint32_t start = 0; start < CELLS; start += 64) {
        mix_row(start, key);
    }
}

__attribute__((noinline)) static uint32_t cold_table(uint32_t key) {
    uint32_t sum = key;
    for (uint32_t i = 0; i < CELLS / 8; i++) {
        sum = (sum ^ table[i * 8]) * 2654435761u; // COLD
    }
    return sum;
}

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    uint32_t sum = 1;
    for (uint32_t round = 0; round < 150000u * multiplier; round++) {
        mix_table(sum);
        sum = cold_table(sum);
    }
    printf("inlined %08x\n", sum);
    return 0;
}
