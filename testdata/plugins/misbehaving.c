// A plugin that does what none should: WRONG says what. Without it, a plugin that works: every stack is one frame, `one`.
#define _GNU_SOURCE
#include "wlprof_plugin.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

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
    SHORT_PROGRAM,
    SHORT_WALKER,
    SHORT_FRAME,
    NULL_GLOBALS,
    MANY_GLOBALS,
    WILD_PROGRAM,
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
    OVERFLOWS_STACK_IN_WALK,
    FREES_WHAT_IT_HAS_NOT,
    EXITS_IN_WALK,
    ENDS_ITS_THREAD,
    THROWS,
    HITS_A_BREAKPOINT,
    LOOPS_UNREACHABLY,
    LOOPS_AND_IGNORES_SIGNALS,
    FORKS,
    ROUNDS_OTHERWISE_IN_WALK,
    ROUNDS_OTHERWISE_IN_ATTACH,
    ROUNDS_OTHERWISE_WHEN_LOADED,
    TAKES_SIGNALS_IN_ATTACH,
    TAKES_SIGNALS_WHEN_LOADED,
    BLOCKS_SIGNALS_IN_ATTACH,
    BLOCKS_SIGNALS_WHEN_LOADED,
    BLOCKS_SIGNALS_IN_WALK,
    EXITS_WHEN_LOADED,
    HANGS_WHEN_LOADED,
    SPEAKS_WHEN_LOADED,
    ABORTS_IN_ATTACH,
    EXITS_IN_ATTACH,
    EXITS_IN_SYMBOLIZE,
    LOOPS_UNREACHABLY_IN_SYMBOLIZE,
    ALL_INTERPRETER,
    WILD_CATEGORY,
    ABORTS_IN_DESTROY,
    EXITS_IN_DESTROY,
    HANGS_AT_THE_END,
    EXITS_AT_ONCE,
    CRASHES_IN_A_THREAD,
    OVERWRITES_WLPROF,
    CRASHES_IN_ALLOCATORS,
    WILD_ALLOCATORS,
    ENDLESS_ALLOCATORS,
    CRASHES_IN_SWITCH_ON,
    WILD_PATCHES,
    CRASHES_IN_HEAP_PROFILE,
    WILD_BUCKETS,
    WILD_RATE,
    ENDLESS_BUCKETS,
    CRASHES_IN_WALKER,
    SHORT_LATER_WALKER,
    OTHER_NAMES_AFTER_WALKERS,
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

// What underflows is 0, and so is what is too small already, as crtfastmath has it.
static void round_otherwise(void) {
#ifdef __x86_64__
    // FTZ and DAZ of SSE, and the precision of what was before it.
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
    unsigned short single_precision = 0x07f;
    __asm__ volatile("fldcw %0" : : "m"(single_precision));
#else
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    // FZ.
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | 1 << 24));
#endif
}

static void hit_a_breakpoint(void) {
#ifdef __x86_64__
    __asm__ volatile("int3");
#else
    __asm__ volatile("brk #0");
#endif
}

static void run_into_an_illegal_instruction(void) {
#ifdef __x86_64__
    __asm__ volatile("ud2");
#else
    // What compilers have for a trap is a breakpoint there.
    __asm__ volatile("udf #0");
#endif
}

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

static void take_signals(void) {
    for (int i = 1; i < NSIG; i++) signal(i, SIG_IGN);
}

static void loop_unreachably(void) {
    block_signals();
    while (forever) {}
}

static void throw_something(void) {
    // On the stack nobody has to free it.
    struct _Unwind_Exception exception = {.exception_class = 1};
    _Unwind_RaiseException(&exception);
    abort();
}

static void *crash_there(void *nothing) {
    crash();
    return nothing;
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
        run_into_an_illegal_instruction();
        break;
    case HITS_A_BREAKPOINT:
        hit_a_breakpoint();
        break;
    case ABORTS:
        abort();
    case OVERFLOWS_STACK_IN_WALK:
        return (uint32_t)recurse(0);
    case FREES_WHAT_IT_HAS_NOT:
        free((void *)((uintptr_t)&word & ~(uintptr_t)15));
        break;
    case EXITS_IN_WALK:
        exit(3);
    case EXITS_AT_ONCE:
        _exit(3);
    case ENDS_ITS_THREAD:
        pthread_exit(NULL);
    case THROWS:
        throw_something();
        break;
    case LOOPS_UNREACHABLY: {
        // Some samples are taken before.
        static int walks;
        if (++walks < 3) break;
        loop_unreachably();
        break;
    }
    case LOOPS_AND_IGNORES_SIGNALS:
        take_signals();
        while (forever) {}
        break;
    case FORKS:
        fork();
        break;
    case ROUNDS_OTHERWISE_IN_WALK:
        round_otherwise();
        break;
    case BLOCKS_SIGNALS_IN_WALK:
        block_signals();
        break;
    case CRASHES_IN_A_THREAD: {
        pthread_t thread;
        pthread_create(&thread, NULL, crash_there, NULL);
        pthread_join(thread, NULL);
        break;
    }
    case OVERWRITES_WLPROF:
        // What wlprof gave it lies among wlprof's own.
        for (volatile char *byte = (volatile char *)stack;; byte++) *byte = 0x55;
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
    default:
        break;
    }
    stack->frames[0] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = 1};
    if (WRONG == WILD_INDEX) stack->frames[0] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_WASM, .value = wasm_count};
    if (WRONG == WILD_KIND) stack->frames[0].kind = 9;
    if (WRONG != NO_LENGTH) stack->length = 1;
    return WLPROF_WALK_END_COMPLETE;
}

// Walkers that are no more, if those are counted.
static volatile int destroyed = 0;

static void symbolize(wlprof_program_t *program, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    (void)program;
    if (frame.kind != WLPROF_FRAME_KIND_OWN) return;
    if (WRONG == NAMELESS) return;
    wlprof_source_frame_t one = {.size = sizeof one, .function = WLPROF_BYTES("one")};
    static uint8_t other[] = "after 0";
    other[6] = (uint8_t)('0' + destroyed % 10);
    if (WRONG == OTHER_NAMES_AFTER_WALKERS) one.function = (wlprof_bytes_t){other, 7};
    switch ((int)WRONG) {
    case CRASHES_IN_SYMBOLIZE:
        crash();
        break;
    case EXITS_IN_SYMBOLIZE:
        exit(3);
    case LOOPS_UNREACHABLY_IN_SYMBOLIZE:
        loop_unreachably();
        break;
    case ALL_INTERPRETER:
        one.category = WLPROF_CATEGORY_INTERPRETER;
        break;
    case WILD_CATEGORY:
        one.category = 77;
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
        for (int i = 0; i < 50000000; i++) frames->add(frames, &one);
        break;
    default:
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

static void allocators(wlprof_program_t *program, const wlprof_module_t *module, const wlprof_allocators_t *allocators,
                       const wlprof_texts_t *missed) {
    (void)program, (void)module, (void)missed;
    wlprof_allocator_t wild = {.size = sizeof wild, .function = UINT32_MAX, .call = 77, .leading_parameters = UINT32_MAX};
    allocators->add(allocators, &wild);
    wild.call = WLPROF_ALLOCATOR_CALL_REALLOC;
    wild.trailing_parameters = UINT32_MAX;
    allocators->add(allocators, &wild);
    wild.function = 0;
    for (int i = 0; WRONG == ENDLESS_ALLOCATORS && i < 50000000; i++) allocators->add(allocators, &wild);
    if (WRONG == CRASHES_IN_ALLOCATORS) crash();
}

static void switch_heap_profiler_on(wlprof_program_t *program, uint64_t rate, const wlprof_memory_patches_t *patches) {
    (void)program, (void)rate;
    // Where C has nothing: there are zeroes.
    static const uint8_t zeroes[8];
    wlprof_bytes_t same = {zeroes, sizeof zeroes};
    wlprof_memory_patch_t patch = {.size = sizeof patch, .expected = &same, .expected_count = 1, .bytes = same};
    patches->add(patches, &patch);
    if (WRONG == WILD_PATCHES) {
        patch = (wlprof_memory_patch_t){.size = sizeof patch, .address = UINT64_MAX, .expected_count = (size_t)1 << 60,
                                        .bytes = {zeroes, (size_t)1 << 60}};
        patches->add(patches, &patch);
    }
    if (WRONG == CRASHES_IN_SWITCH_ON) crash();
}

static uint32_t heap_profile(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_heap_buckets_t *buckets,
                             uint64_t *rate) {
    (void)walker, (void)guest;
    if (WRONG == CRASHES_IN_HEAP_PROFILE) crash();
    wlprof_heap_bucket_t bucket = {.size = sizeof bucket, .frame_count = (size_t)1 << 60, .allocated_blocks = 1,
                                   .allocated_bytes = 10, .freed_blocks = 2, .freed_bytes = UINT64_MAX};
    buckets->add(buckets, &bucket);
    bucket.allocated_bytes = UINT64_MAX;
    if (WRONG == WILD_BUCKETS) buckets->add(buckets, &bucket);
    for (int i = 0; WRONG == ENDLESS_BUCKETS && i < 50000000; i++) buckets->add(buckets, &bucket);
    *rate = UINT64_MAX;
    return WLPROF_WALK_END_COMPLETE;
}

__attribute__((constructor)) static void when_loaded(void) {
    if (WRONG == CRASHES_WHEN_LOADED) crash();
    if (WRONG == ROUNDS_OTHERWISE_WHEN_LOADED) round_otherwise();
    if (WRONG == TAKES_SIGNALS_WHEN_LOADED) take_signals();
    if (WRONG == BLOCKS_SIGNALS_WHEN_LOADED) block_signals();
    if (WRONG == EXITS_WHEN_LOADED) exit(3);
    if (WRONG == HANGS_WHEN_LOADED)
        while (forever) pause();
    if (WRONG == SPEAKS_WHEN_LOADED && write(STDERR_FILENO, "I was opened\n", 13) < 0) abort();
}

__attribute__((destructor)) static void at_the_end(void) {
    if (WRONG == HANGS_AT_THE_END)
        while (forever) {}
}

static void destroy_walker(wlprof_walker_t *walker) {
    if (WRONG == OTHER_NAMES_AFTER_WALKERS) destroyed++;
    free(walker);
}

static void destroy(wlprof_program_t *program) {
    if (WRONG == CRASHES_IN_DESTROY) crash();
    if (WRONG == ABORTS_IN_DESTROY) abort();
    if (WRONG == EXITS_IN_DESTROY) exit(3);
    free(program);
}

// As structures of a later version are: longer than wlprof knows.
struct later_program {
    wlprof_program_t program;
    void (*later)(void);
};
struct later_walker {
    wlprof_walker_t walker;
    void (*later)(void);
};

static bool counts_itself(void) {
    return WRONG >= CRASHES_IN_SWITCH_ON && WRONG <= ENDLESS_BUCKETS;
}

static wlprof_walker_t *make_walker(wlprof_program_t *program) {
    (void)program;
    static int made = 0;
    if (WRONG == CRASHES_IN_WALKER) crash();
    if (WRONG == WILD_WALKER) return (wlprof_walker_t *)64;
    struct later_walker *later = calloc(1, sizeof *later);
    bool is_short = WRONG == SHORT_WALKER || (WRONG == SHORT_LATER_WALKER && made++ > 0);
    later->walker = (wlprof_walker_t){
        .size = is_short ? 16 : WRONG == FROM_THE_FUTURE ? sizeof *later : sizeof later->walker,
        .flags = WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .destroy = destroy_walker,
        .walk = WRONG == NO_WALK ? NULL : walk,
        .threads = threads,
        .heap_profile = counts_itself() ? heap_profile : NULL,
    };
    return &later->walker;
}

static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                                const wlprof_texts_t *error) {
    (void)language, (void)module, (void)error;
    if (WRONG == LOOPS_IN_ATTACH)
        while (forever) {}
    if (WRONG == CRASHES_IN_ATTACH) crash();
    if (WRONG == ABORTS_IN_ATTACH) abort();
    if (WRONG == EXITS_IN_ATTACH) exit(3);
    if (WRONG == ROUNDS_OTHERWISE_IN_ATTACH) round_otherwise();
    if (WRONG == TAKES_SIGNALS_IN_ATTACH) take_signals();
    if (WRONG == BLOCKS_SIGNALS_IN_ATTACH) block_signals();
    if (WRONG == WILD_PROGRAM) return (wlprof_program_t *)64;
    struct later_program *later = calloc(1, sizeof *later);
    later->program = (wlprof_program_t){
        .size = WRONG == SHORT_PROGRAM ? 16 : WRONG == FROM_THE_FUTURE ? sizeof *later : sizeof later->program,
        .wanted_global_count = WRONG == NULL_GLOBALS ? 1 : WRONG == MANY_GLOBALS ? (size_t)1 << 60 : 0,
        .destroy = destroy,
        .walker = WRONG == ONLY_NAMES ? NULL : make_walker,
        .symbolize = symbolize,
        .allocators = WRONG >= CRASHES_IN_ALLOCATORS && WRONG <= ENDLESS_ALLOCATORS ? allocators : NULL,
        .switch_heap_profiler_on = counts_itself() ? switch_heap_profiler_on : NULL,
    };
    return &later->program;
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
