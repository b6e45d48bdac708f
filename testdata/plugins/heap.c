// A plugin that tells of heaps: that `calloc` allocates. With COUNTS_ITSELF the guest's runtime is said to count, with EXPECTS_OTHERS
// where something else is expected to be than is there, with TRUSTS_THE_GUEST by walkers that abort where its memory is damaged.
// Every stack is what wasm has, and `all` at its root.
#include "wlprof_plugin.h"
#include <stdlib.h>
#include <string.h>

enum { ALL = 1, FIRST = 2, SECOND = 3 };

struct heap {
    wlprof_program_t program;
    // The first data that the module starts with.
    uint64_t address;
    uint8_t data[8];
};

struct reader {
    wlprof_walker_t walker;
    const struct heap *heap;
};

static uint32_t walk(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                     size_t wasm_count, wlprof_stack_t *stack) {
    (void)walker, (void)guest, (void)wasm;
    size_t count = wasm_count < stack->capacity ? wasm_count : stack->capacity - 1;
    for (size_t i = 0; i < count; i++)
        stack->frames[i] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_WASM, .value = i};
    stack->frames[count] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = ALL};
    stack->length = count + 1;
    return WLPROF_WALK_END_COMPLETE;
}

static void symbolize(wlprof_program_t *program, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    (void)program;
    if (frame.kind != WLPROF_FRAME_KIND_OWN) return;
    wlprof_source_frame_t source = {.size = sizeof source, .function = WLPROF_BYTES("all")};
    if (frame.value == FIRST) source.function = (wlprof_bytes_t)WLPROF_BYTES("first");
    if (frame.value == SECOND) source.function = (wlprof_bytes_t)WLPROF_BYTES("second");
    frames->add(frames, &source);
}

#ifdef COUNTS_ITSELF
static void switch_heap_profiler_on(wlprof_program_t *program, uint64_t rate, const wlprof_memory_patches_t *patches) {
    (void)rate;
    const struct heap *heap = (const struct heap *)program;
    uint8_t expected[sizeof heap->data];
    memcpy(expected, heap->data, sizeof expected);
#ifdef EXPECTS_OTHERS
    expected[0] ^= 1;
#endif
    wlprof_bytes_t forms[] = {{expected, 3}, {expected, sizeof expected}};
    wlprof_memory_patch_t patch = {
        .size = sizeof patch,
        .address = heap->address,
        .expected = forms,
        .expected_count = 2,
        .bytes = {heap->data, sizeof heap->data},
    };
    patches->add(patches, &patch);
}

static uint32_t heap_profile(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_heap_buckets_t *buckets,
                             uint64_t *rate) {
    const struct heap *heap = ((const struct reader *)walker)->heap;
    uint8_t data[sizeof heap->data];
    if (!guest->read(guest, heap->address, data, sizeof data)) return WLPROF_WALK_END_BAD_POINTER;
#ifdef TRUSTS_THE_GUEST
    if (memcmp(data, heap->data, sizeof data)) abort();
#endif
    wlprof_frame_key_t first = {.kind = WLPROF_FRAME_KIND_OWN, .value = FIRST};
    wlprof_frame_key_t second[] = {
        {.kind = WLPROF_FRAME_KIND_OWN, .value = SECOND},
        {.kind = WLPROF_FRAME_KIND_WASM, .wasm = {.function = 1}},
        {.kind = WLPROF_FRAME_KIND_OWN, .value = ALL},
    };
    wlprof_heap_bucket_t bucket = {.size = sizeof bucket, .frames = &first, .frame_count = 1, .allocated_blocks = 3,
                                   .allocated_bytes = 300, .freed_blocks = 1, .freed_bytes = 100};
    buckets->add(buckets, &bucket);
    bucket = (wlprof_heap_bucket_t){.size = sizeof bucket, .frames = second, .frame_count = 3, .allocated_blocks = 5,
                                    .allocated_bytes = 5000};
    buckets->add(buckets, &bucket);
    *rate = 1;
    return WLPROF_WALK_END_COMPLETE;
}
#else
static void allocators(wlprof_program_t *program, const wlprof_module_t *module, const wlprof_allocators_t *allocators,
                       const wlprof_texts_t *missed) {
    (void)program;
    wlprof_allocator_t calloc_alone = {.size = sizeof calloc_alone, .call = WLPROF_ALLOCATOR_CALL_CALLOC};
    if (module->function_named(module, (wlprof_bytes_t)WLPROF_BYTES("calloc"), &calloc_alone.function))
        allocators->add(allocators, &calloc_alone);
    missed->add(missed, (wlprof_bytes_t)WLPROF_BYTES("what is not allocated by calloc is not seen"));
}
#endif

static void destroy_walker(wlprof_walker_t *walker) {
    free(walker);
}

static wlprof_walker_t *make_walker(wlprof_program_t *program) {
    struct reader *reader = calloc(1, sizeof *reader);
    reader->walker = (wlprof_walker_t){
        .size = sizeof reader->walker,
        .flags = WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .destroy = destroy_walker,
        .walk = walk,
#ifdef COUNTS_ITSELF
        .heap_profile = heap_profile,
#endif
    };
    reader->heap = (const struct heap *)program;
    return &reader->walker;
}

static void destroy(wlprof_program_t *program) {
    free(program);
}

static void find_data(struct heap *heap, const wlprof_module_t *module) {
    static const uint8_t nothing[sizeof heap->data];
    while (module->initial_data(module, heap->address, heap->data, sizeof nothing) && !memcmp(heap->data, nothing, sizeof nothing))
        heap->address += sizeof nothing;
}

static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                                const wlprof_texts_t *error) {
    (void)language, (void)error;
    struct heap *heap = calloc(1, sizeof *heap);
    heap->program = (wlprof_program_t){
        .size = sizeof heap->program,
        .destroy = destroy,
        .walker = make_walker,
        .symbolize = symbolize,
#ifdef COUNTS_ITSELF
        .switch_heap_profiler_on = switch_heap_profiler_on,
#else
        .allocators = allocators,
#endif
    };
    find_data(heap, module);
    return &heap->program;
}

// Whatever has an allocator.
static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language;
    uint32_t function = 0;
    if (!module->function_named(module, (wlprof_bytes_t)WLPROF_BYTES("malloc"), &function)) return WLPROF_DETECTION_NO;
    answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("heap"));
    return WLPROF_DETECTION_YES;
}

static const wlprof_language_t language = {
    .size = sizeof language,
    .name = WLPROF_BYTES("heap"),
    .detect = detect,
    .attach = attach,
};

static const wlprof_language_t *const languages[] = {&language};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WLPROF_ABI_MINOR,
    .size = sizeof wlprof_plugin,
    .name = WLPROF_BYTES("heap"),
    .version = WLPROF_BYTES("1.0"),
    .languages = languages,
    .language_count = 1,
};
