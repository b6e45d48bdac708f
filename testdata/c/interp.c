// The interpreter bench target: a bytecode loop with one big switch, running a sieve of primes.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum opcode { SET, COPY, ADD, ADD_NUMBER, LOAD, STORE, JUMP, JUMP_IF_LESS, JUMP_IF_ZERO, HALT };
struct instruction { uint8_t opcode, a, b; int32_t number; };

enum { LIMIT = 200000 };
static uint8_t memory[LIMIT];

// Registers: 0 candidate, 1 multiple, 2 limit, 3 scratch, 4 count of primes, 5 one.
static const struct instruction program[] = {
    /*  0 */ {SET, 2, 0, LIMIT},
    /*  1 */ {SET, 5, 0, 1},
    /*  2 */ {SET, 4, 0, 0},
    /*  3 */ {SET, 0, 0, 2},
    /*  4 */ {LOAD, 3, 0, 0},
    /*  5 */ {JUMP_IF_ZERO, 3, 0, 7},
    /*  6 */ {JUMP, 0, 0, 12},
    /*  7 */ {ADD_NUMBER, 4, 0, 1},
    /*  8 */ {COPY, 1, 0, 0},
    /*  9 */ {ADD, 1, 0, 0},
    /* 10 */ {JUMP_IF_LESS, 1, 2, 14},
    /* 11 */ {JUMP, 0, 0, 12},
    /* 12 */ {ADD_NUMBER, 0, 0, 1},
    /* 13 */ {JUMP, 0, 0, 16},
    /* 14 */ {STORE, 1, 5, 0},
    /* 15 */ {JUMP, 0, 0, 9},
    /* 16 */ {JUMP_IF_LESS, 0, 2, 4},
    /* 17 */ {HALT, 4, 0, 0},
};

__attribute__((noinline)) static int64_t interpret(const struct instruction *code) {
    int64_t registers[8] = {0};
    const struct instruction *at = code;
    for (;;) {
        struct instruction now = *at++;
        switch (now.opcode) {
        case SET: registers[now.a] = now.number; break;
        case COPY: registers[now.a] = registers[now.b]; break;
        case ADD: registers[now.a] += registers[now.b]; break;
        case ADD_NUMBER: registers[now.a] += now.number; break;
        case LOAD: registers[now.a] = memory[registers[now.b]]; break;
        case STORE: memory[registers[now.a]] = (uint8_t)registers[now.b]; break;
        case JUMP: at = code + now.number; break;
        case JUMP_IF_LESS: if (registers[now.a] < registers[now.b]) at = code + now.number; break;
        case JUMP_IF_ZERO: if (registers[now.a] == 0) at = code + now.number; break;
        case HALT: return registers[now.a];
        }
    }
}

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? atoi(argv[1]) : 1;
    int64_t sum = 0;
    for (int round = 0; round < 70 * multiplier; round++) {
        memset(memory, 0, sizeof memory);
        sum += interpret(program);
    }
    printf("interp %lld\n", (long long)sum);
    return 0;
}
