// A wlprof plugin for LANGUAGE. See README.md.
#include "wlprof_plugin.h"
#include <stdlib.h>

#define TEXT(literal) ((wlprof_bytes_t)WLPROF_BYTES(literal))

// What is known of one module. wlprof has a pointer to the first member.
struct program {
    wlprof_program_t program;
    // Address of the variable that leads to the innermost frame.
    uint64_t top;
};

// What reads the instances of a module that work on one memory.
struct walker {
    wlprof_walker_t walker;
    const struct program *program;
};

// Whether a module is in this language. Cheap: it is asked about every guest.
static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language;
    uint64_t address;
    // Look for something that every program of the language has and no other does.
    if (!module->variable_address(module, TEXT("LANGUAGE_stack"), &address)) return WLPROF_DETECTION_NO;
    answer->add(answer, TEXT("LANGUAGE"));
    return WLPROF_DETECTION_YES;
}

// Reads the stack of the stopped guest, innermost frame first. Runs in a signal handler.
static uint32_t walk(wlprof_walker_t *base, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                     size_t wasm_count, wlprof_stack_t *stack) {
    (void)wasm, (void)wasm_count;
    const struct program *program = ((struct walker *)base)->program;
    uint32_t frame;
    if (!guest->read(guest, program->top, &frame, sizeof frame)) return WLPROF_WALK_END_BAD_POINTER;
    if (!frame) return WLPROF_WALK_END_NO_STACK;
    // Follow the frames from here. A key is a number of your own choice for a function and a line; names come later.
    if (stack->length == stack->capacity) return WLPROF_WALK_END_TOO_DEEP;
    stack->frames[stack->length++] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = frame};
    return WLPROF_WALK_END_COMPLETE;
}

// Says what a frame is, once for each key. The guest cannot be read any more.
static void symbolize(wlprof_program_t *base, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    (void)base;
    if (frame.kind != WLPROF_FRAME_KIND_OWN) return;
    wlprof_source_frame_t source = {.size = sizeof source, .function = WLPROF_BYTES("a function")};
    frames->add(frames, &source);
}

static void destroy_walker(wlprof_walker_t *base) {
    free(base);
}

// Prepares to walk an instance. What is kept here is of that one alone.
static wlprof_walker_t *make_walker(wlprof_program_t *base) {
    struct walker *walker = calloc(1, sizeof *walker);
    if (!walker) return NULL;
    walker->walker = (wlprof_walker_t){
        .size = sizeof walker->walker,
        .flags = WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .destroy = destroy_walker,
        .walk = walk,
    };
    walker->program = (const struct program *)base;
    return &walker->walker;
}

static void destroy(wlprof_program_t *base) {
    free(base);
}

// Reads a module's tables, finds what it keeps where.
static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                                const wlprof_texts_t *error) {
    (void)language;
    struct program *program = calloc(1, sizeof *program);
    if (!program || !module->variable_address(module, TEXT("LANGUAGE_stack"), &program->top)) {
        error->add(error, TEXT("it has no variable `LANGUAGE_stack`; build it with -g"));
        free(program);
        return NULL;
    }
    program->program = (wlprof_program_t){
        .size = sizeof program->program,
        .destroy = destroy,
        .walker = make_walker,
        .symbolize = symbolize,
    };
    return &program->program;
}

static const wlprof_language_t language = {
    .size = sizeof language,
    .name = WLPROF_BYTES("LANGUAGE"),
    .detect = detect,
    .attach = attach,
};

static const wlprof_language_t *const languages[] = {&language};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WLPROF_ABI_MINOR,
    .size = sizeof wlprof_plugin,
    .name = WLPROF_BYTES("LANGUAGE"),
    .version = WLPROF_BYTES("0.1.0"),
    .languages = languages,
    .language_count = 1,
};
