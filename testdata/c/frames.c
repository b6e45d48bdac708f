// A toy interpreter that keeps its own frames in linear memory, for the tests of language
// walkers. The exported global `frame_top` holds the address of a `struct frame *`, the innermost
// frame; frames are linked through `previous`. Layout, 32-bit little endian:
//   struct frame { u32 previous; u32 line; u32 name; }   (name: NUL-terminated)
// The toy program is `module` calling `outer`, calling `left` and `right` at a cost of 3 to 1.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct frame {
    struct frame *previous;
    uint32_t line;
    const char *name;
};

// Volatile, so that every change of it reaches memory while the work goes on.
__attribute__((used, visibility("default"))) struct frame *volatile frame_top;

__attribute__((noinline)) static uint64_t evaluate(uint64_t state, uint32_t iterations) {
    for (uint32_t i = 0; i < iterations; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

typedef uint64_t (*body)(struct frame *self, uint64_t state);

__attribute__((noinline)) static uint64_t call(const char *name, body run, uint64_t state) {
    struct frame frame = {frame_top, 0, name};
    frame_top = &frame;
    state = run(&frame, state);
    frame_top = frame.previous;
    return state;
}

static void at_line(struct frame *self, uint32_t line) {
    ((volatile struct frame *)self)->line = line;
}

static uint64_t left_body(struct frame *self, uint64_t state) {
    at_line(self, 11);
    return evaluate(state, 3000);
}

static uint64_t right_body(struct frame *self, uint64_t state) {
    at_line(self, 21);
    return evaluate(state, 1000);
}

static uint64_t outer_body(struct frame *self, uint64_t state) {
    at_line(self, 31);
    state = call("left", left_body, state);
    at_line(self, 32);
    return call("right", right_body, state);
}

static int multiplier = 1;

static uint64_t module_body(struct frame *self, uint64_t state) {
    for (int64_t round = 0; round < 90000LL * multiplier; round++) {
        at_line(self, 41);
        state = call("outer", outer_body, state);
    }
    return state;
}

int main(int argc, char **argv) {
    multiplier = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t state = call("module", module_body, 1);
    printf("frames %016llx\n", (unsigned long long)state);
    return 0;
}
