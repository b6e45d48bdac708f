// A plugin that does what none should: WRONG says what. Without it, a plugin that works: every stack is one frame, `one`.
#define _POSIX_C_SOURCE 200809L // clock_gettime
#include "wlprof_plugin.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NOTHING,
    LOOPS_IN_WALK,
    LOOPS_IN_READ,
    SLEEPS_IN_WALK,
    CRASHES_IN_WALK,
    OVERRUNS,
    WILD_COUNT,
    WILD_INDEX,
    WILD_KIND,
    WILD_END,
    FAILS,
    LOOPS_IN_ATTACH,
    CRASHES_IN_ATTACH,
    CRASHES_IN_DETECT,
    CRASHES_IN_SYMBOLIZE,
    OVERFLOWS_STACK_IN_SYMBOLIZE,
    DIVIDES_BY_ZERO,
    GIANT_TEXT,
    IMPOSSIBLE_TEXT,
    NO_TEXT,
    ENDLESS_FRAMES,
    NO_DETECT,
    NO_WALK,
    NO_LANGUAGES,
    SHORT_PLUGIN,
    SHORT_WALKER,
    SHORT_FRAME,
    NULL_GLOBALS,
    MANY_GLOBALS,
    WILD_WALKER,
    WILD_NAME,
    ENDLESS_TEXT,
    NO_LENGTH,
    ABORTS,
    CRASHES_IN_DESTROY,
    FROM_THE_FUTURE,
    UNSTABLE,
    NAMELESS,
    SLOW,
    TRUSTING,
    GREEDY_OF_STACK,
    ILLEGAL_INSTRUCTION,
    CRASHES_WHEN_LOADED,
    CRASHES_IN_THREADS,
    LOOPS_IN_THREADS,
    UNSUPPORTED,
    DOES_NOT_KNOW,
    NAMED_AUTO,
    ONLY_NAMES,
};

#ifndef WRONG
#define WRONG NOTHING
#endif

static volatile int forever = 1;
static volatile int zero = 0;

// So that compilers do not see what they are asked for.
static int *volatile nowhere = NULL;

static void crash(void) {
    *nowhere = 1;
}

__attribute__((noinline)) static int recurse(int depth) {
    volatile char room[1000] = {(char)depth};
    return forever ? recurse(depth + 1) + room[depth % 1000] : 0;
}

static uint32_t walk(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                     size_t wasm_count, wlprof_stack_t *stack) {
    (void)walker, (void)wasm;
    uint64_t word;
    switch ((int)WRONG) {
    case LOOPS_IN_WALK:
        while (forever) {}
        break;
    case LOOPS_IN_READ:
        while (forever) guest->read(guest, 0, &word, sizeof word);
        break;
    case SLEEPS_IN_WALK:
        sleep(1000);
        while (forever) pause();
        break;
    case CRASHES_IN_WALK:
        crash();
        break;
    case DIVIDES_BY_ZERO:
        return (uint32_t)((int)wasm_count / zero);
    case ILLEGAL_INSTRUCTION:
        __builtin_trap();
    case ABORTS:
        abort();
    case OVERRUNS:
        for (size_t i = 0; i < stack->capacity + 1000; i++) stack->frames[i].value = i;
        break;
    case WILD_COUNT:
        stack->length = SIZE_MAX;
        return WLPROF_WALK_END_COMPLETE;
    case WILD_END:
        stack->frames[0] = (wlprof_stack_frame_t){.value = 1};
        stack->length = 1;
        return 77;
    case FAILS:
        return WLPROF_WALK_END_FAILED;
    case UNSTABLE: {
        static uint64_t walks;
        stack->frames[0] = (wlprof_stack_frame_t){.value = walks++};
        stack->length = 1;
        return WLPROF_WALK_END_COMPLETE;
    }
    case SLOW: {
        // By the clock that the check measures with: a number of rounds is not slow on every machine.
        struct timespec began, now;
        clock_gettime(CLOCK_MONOTONIC, &began);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec - began.tv_nsec < 2000000);
        break;
    }
    case TRUSTING: {
        static uint64_t before;
        if (!guest->read(guest, 4096, &word, sizeof word)) crash();
        if (before && before != word + 1) crash();
        before = word + 1;
        break;
    }
    case ENDLESS_TEXT: {
        static char text[64];
        // In a text of the guest's, which ends somewhere.
        for (int i = 0; guest->read(guest, 1024 + (uint64_t)i, &text[i], 1) && text[i]; i++) {}
        break;
    }
    case GREEDY_OF_STACK: {
        volatile char room[222 << 10];
        for (size_t i = 0; i < sizeof room; i += 1000) room[i] = (char)i;
        break;
    }
    }
    stack->frames[0] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = 1};
    if (WRONG == WILD_INDEX) stack->frames[0] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_WASM, .value = wasm_count};
    if (WRONG == WILD_KIND) stack->frames[0].kind = 9;
    if (WRONG != NO_LENGTH) stack->length = 1;
    return WLPROF_WALK_END_COMPLETE;
}

static void symbolize(wlprof_walker_t *walker, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    (void)walker;
    if (frame.kind != WLPROF_FRAME_KIND_OWN) return;
    if (WRONG == NAMELESS) return;
    wlprof_source_frame_t one = {.size = sizeof one, .function = WLPROF_BYTES("one")};
    switch ((int)WRONG) {
    case CRASHES_IN_SYMBOLIZE:
        crash();
        break;
    case OVERFLOWS_STACK_IN_SYMBOLIZE:
        one.line = (uint32_t)recurse(0);
        break;
    case GIANT_TEXT: {
        size_t length = 64 << 20;
        char *text = malloc(length);
        memset(text, 'g', length);
        one.function = (wlprof_bytes_t){(const uint8_t *)text, length};
        frames->add(frames, &one);
        free(text);
        return;
    }
    case IMPOSSIBLE_TEXT:
        one.function.length = SIZE_MAX;
        break;
    case SHORT_FRAME:
        one.size = 8;
        break;
    case NO_TEXT:
        one.function = (wlprof_bytes_t){NULL, 1000};
        break;
    case ENDLESS_FRAMES:
        for (int i = 0; i < 10000000; i++) frames->add(frames, &one);
        break;
    }
    frames->add(frames, &one);
}

static void threads(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                    size_t wasm_count, const wlprof_threads_t *threads) {
    (void)walker, (void)guest, (void)wasm, (void)wasm_count;
    if (WRONG == CRASHES_IN_THREADS) crash();
    wlprof_label_t labels[200];
    for (int i = 0; i < 200; i++) labels[i] = (wlprof_label_t){WLPROF_BYTES("name"), WLPROF_BYTES("value")};
    wlprof_thread_t thread = {.size = sizeof thread, .name = WLPROF_BYTES("main"), .labels = labels, .label_count = 200};
    do threads->add(threads, &thread);
    while (WRONG == LOOPS_IN_THREADS && forever);
}

__attribute__((constructor)) static void when_loaded(void) {
    if (WRONG == CRASHES_WHEN_LOADED) crash();
}

static void destroy(wlprof_walker_t *walker) {
    if (WRONG == CRASHES_IN_DESTROY) crash();
    free(walker);
}

// As structures of a later version are: longer than wlprof knows.
struct later_walker {
    wlprof_walker_t walker;
    void (*later)(void);
};

static wlprof_walker_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                               const wlprof_texts_t *error) {
    (void)language, (void)module, (void)error;
    if (WRONG == LOOPS_IN_ATTACH)
        while (forever) {}
    if (WRONG == CRASHES_IN_ATTACH) crash();
    if (WRONG == WILD_WALKER) return (wlprof_walker_t *)64;
    struct later_walker *later = calloc(1, sizeof *later);
    later->walker = (wlprof_walker_t){
        .size = WRONG == SHORT_WALKER ? 16 : WRONG == FROM_THE_FUTURE ? sizeof *later : sizeof later->walker,
        .flags = WRONG == ONLY_NAMES ? 0 : WLPROF_WALKER_READS_GUEST | WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .wanted_global_count = WRONG == NULL_GLOBALS ? 1 : WRONG == MANY_GLOBALS ? (size_t)1 << 60 : 0,
        .destroy = destroy,
        .walk = WRONG == NO_WALK ? NULL : walk,
        .symbolize = symbolize,
        .threads = threads,
    };
    return &later->walker;
}

static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language, (void)module;
    if (WRONG == CRASHES_IN_DETECT) crash();
    if (WRONG == DOES_NOT_KNOW) return WLPROF_DETECTION_NO;
    if (WRONG == UNSUPPORTED) {
        answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("misbehaving 0"));
        answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("1"));
        return WLPROF_DETECTION_UNSUPPORTED;
    }
    answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("misbehaving 1"));
    return WLPROF_DETECTION_YES;
}

static const wlprof_language_t misbehaving = {
    .size = sizeof misbehaving,
    .name = {(const uint8_t *)(WRONG == WILD_NAME ? (const char *)16 : WRONG == NAMED_AUTO ? "auto" : "misbehaving"),
             WRONG == NAMED_AUTO ? 4 : 11},
    .detect = WRONG == NO_DETECT ? NULL : detect,
    .attach = attach,
};

static const wlprof_language_t *const languages[] = {&misbehaving};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WRONG == FROM_THE_FUTURE ? WLPROF_ABI_MINOR + 7 : WLPROF_ABI_MINOR,
    .size = WRONG == SHORT_PLUGIN ? 8 : sizeof wlprof_plugin,
    .name = WLPROF_BYTES("misbehaving"),
    .version = WLPROF_BYTES("1.0"),
    .languages = WRONG == NO_LANGUAGES ? NULL : languages,
    .language_count = 1,
};
