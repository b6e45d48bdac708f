// A plugin that uses what others rarely do, and says what it was told. Every stack is `inner`, what is left out, `outer`. With
// WILD_LABELS it says that it wrote more keys of labels than there is room for.
#include "wlprof_plugin.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INNER = 1, OUTER = 2, COLOR = 10, SHAPE = 11 };

struct additions {
    wlprof_program_t program;
    char said[300];
    // Of all its walkers.
    atomic_uint walks;
};

struct stacks {
    wlprof_walker_t walker;
    struct additions *additions;
};

static uint32_t walk(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                     size_t wasm_count, wlprof_stack_t *stack) {
    (void)guest, (void)wasm, (void)wasm_count;
    ++((struct stacks *)walker)->additions->walks;
    stack->frames[0] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = INNER};
    stack->frames[1] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_ELIDED};
    stack->frames[2] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = OUTER};
    stack->length = 3;
    stack->labels = COLOR;
    stack->has_labels = 1;
    if (stack->label_capacity > 0) {
        stack->label_keys[0] = SHAPE;
        stack->label_count = 1;
    }
#ifdef WILD_LABELS
    stack->label_count = stack->label_capacity + 1;
#endif
    return WLPROF_WALK_END_COMPLETE;
}

static void symbolize(wlprof_program_t *program, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    (void)program;
    if (frame.kind == WLPROF_FRAME_KIND_ELIDED) abort();
    char name[60];
    if (frame.kind == WLPROF_FRAME_KIND_WASM && frame.wasm.module) {
        int length = sprintf(name, "%u in sibling %u at %u", frame.wasm.function, frame.wasm.module, frame.wasm.code_offset);
        wlprof_source_frame_t wasm = {.size = sizeof wasm, .function = {(const uint8_t *)name, (size_t)length}};
        frames->add(frames, &wasm);
    }
    if (frame.kind != WLPROF_FRAME_KIND_OWN) return;
    wlprof_source_frame_t source = {.size = sizeof source, .function = WLPROF_BYTES("inner")};
    if (frame.value == OUTER) source.function = (wlprof_bytes_t)WLPROF_BYTES("outer");
    frames->add(frames, &source);
}

static void labels(wlprof_program_t *program, uint64_t key, const wlprof_labels_t *labels) {
    (void)program;
    wlprof_bytes_t color = WLPROF_BYTES("color"), red = WLPROF_BYTES("red");
    wlprof_bytes_t shape = WLPROF_BYTES("shape"), round = WLPROF_BYTES("round");
    labels->add(labels, key == COLOR ? color : shape, key == COLOR ? red : round);
}

static void say(const wlprof_texts_t *texts, const char *said) {
    texts->add(texts, (wlprof_bytes_t){(const uint8_t *)said, strlen(said)});
}

// The last one says how often the walkers have walked.
static void warnings(wlprof_program_t *program, const wlprof_texts_t *warnings) {
    struct additions *additions = (struct additions *)program;
    char walks[40];
    sprintf(walks, "after %u walks", additions->walks);
    say(warnings, additions->said);
    say(warnings, walks);
}

static void destroy_walker(wlprof_walker_t *walker) {
    free(walker);
}

static void destroy(wlprof_program_t *program) {
    free(program);
}

static wlprof_walker_t *make_walker(wlprof_program_t *program) {
    struct stacks *stacks = malloc(sizeof *stacks);
    stacks->walker = (wlprof_walker_t){
        .size = sizeof stacks->walker,
        .flags = WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .destroy = destroy_walker,
        .walk = walk,
    };
    stacks->additions = (struct additions *)program;
    return &stacks->walker;
}

static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                                const wlprof_texts_t *error) {
    (void)language, (void)error;
    struct additions *additions = calloc(1, sizeof *additions);
    additions->program = (wlprof_program_t){
        .size = sizeof additions->program,
        .destroy = destroy,
        .walker = make_walker,
        .symbolize = symbolize,
        .labels = labels,
        .warnings = warnings,
    };
    uint32_t evaluate = 0, pointed_to = 0, none = 0;
    // The first page of memory with data in it.
    static uint8_t page[4096];
    unsigned number = 0, sum = 0;
    while (!sum && module->initial_data(module, (uint64_t)number++ * sizeof page, page, sizeof page))
        for (size_t i = 0; i < sizeof page; i++) sum += page[i];
    bool known = module->function_named(module, (wlprof_bytes_t)WLPROF_BYTES("evaluate"), &evaluate)
        && !module->function_named(module, (wlprof_bytes_t)WLPROF_BYTES("no such function"), &none)
        && module->table_function(module, 0, 1, &pointed_to) && !module->table_function(module, 0, 0, &none)
        && !module->initial_data(module, UINT64_MAX, page, sizeof page);
    wlprof_bytes_t hash = module->code_hash(module);
    int length = sprintf(additions->said, "%d evaluate %u pointer 1 to %u data %u %u hash ", known, evaluate,
                         pointed_to, number - 1, sum);
    for (size_t i = 0; i < hash.length && i < 32; i++)
        length += sprintf(additions->said + length, "%02x", hash.data[i]);
    for (uint32_t i = 0; i < module->sibling_count(module) && i < 2; i++) {
        const wlprof_module_t *sibling = module->sibling(module, i);
        wlprof_bytes_t name = sibling->name(sibling);
        uint32_t base = 0;
        sibling->global_named(sibling, (wlprof_bytes_t)WLPROF_BYTES("__memory_base"), &base);
        length += sprintf(additions->said + length, " sibling %u %.*s %u", i + 1, (int)name.length, (const char *)name.data, base);
    }
    return &additions->program;
}

static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language, (void)module;
    answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("additions"));
    return WLPROF_DETECTION_YES;
}

static const wlprof_language_t language = {
    .size = sizeof language,
    .name = WLPROF_BYTES("additions"),
    .detect = detect,
    .attach = attach,
};

static const wlprof_language_t *const languages[] = {&language};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WLPROF_ABI_MINOR,
    .size = sizeof wlprof_plugin,
    .name = WLPROF_BYTES("additions"),
    .version = WLPROF_BYTES("1.0"),
    .languages = languages,
    .language_count = 1,
};
