// Shows wlprof the stacks of programs in the tiny language, which interpreter.c runs. docs/writing-a-plugin.md explains it.
#include "wlprof_plugin.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(literal) ((wlprof_bytes_t)WLPROF_BYTES(literal))

enum { MOST_FUNCTIONS = 500, LONGEST_NAME = 64 };

// A function that was seen on a stack.
struct function {
    char name[LONGEST_NAME], file[LONGEST_NAME];
};

// What is known of a module. wlprof has a pointer to the first member.
struct tiny {
    wlprof_program_t program;
    // The C function that runs programs.
    uint32_t run;
    // Where the guest keeps what is read: the address of its innermost frame, and offsets.
    uint64_t top, caller, function, next, name, file, line, instruction_size;
    // The functions that were seen in all instances. They stay where they are; whoever adds one holds the lock.
    struct function functions[MOST_FUNCTIONS];
    _Atomic uint32_t function_count;
    atomic_flag is_locked;
};

// What reads one instance: where it has the functions, by their indices.
struct reader {
    wlprof_walker_t walker;
    struct tiny *tiny;
    uint32_t addresses[MOST_FUNCTIONS];
};

static bool offset_of(const wlprof_module_t *module, wlprof_bytes_t structure, wlprof_bytes_t name, uint64_t *offset) {
    wlprof_member_t member;
    bool found = module->member(module, structure, name, &member);
    if (found) *offset = member.offset;
    return found;
}

static bool find_layout(struct tiny *tiny, const wlprof_module_t *module) {
    return module->variable_address(module, TEXT("machine"), &tiny->top)
        && offset_of(module, TEXT("frame"), TEXT("caller"), &tiny->caller)
        && offset_of(module, TEXT("frame"), TEXT("function"), &tiny->function)
        && offset_of(module, TEXT("frame"), TEXT("next"), &tiny->next)
        && offset_of(module, TEXT("function"), TEXT("name"), &tiny->name)
        && offset_of(module, TEXT("function"), TEXT("file"), &tiny->file)
        && offset_of(module, TEXT("instruction"), TEXT("line"), &tiny->line)
        && module->type_size(module, TEXT("instruction"), &tiny->instruction_size);
}

static bool is_called(const wlprof_module_t *module, uint32_t index, const char *wanted) {
    wlprof_bytes_t name;
    return module->function_name(module, index, &name) && name.length == strlen(wanted)
        && !memcmp(name.data, wanted, name.length);
}

static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language;
    uint64_t line;
    if (!offset_of(module, TEXT("instruction"), TEXT("line"), &line)) return WLPROF_DETECTION_NO;
    answer->add(answer, TEXT("tiny"));
    return WLPROF_DETECTION_YES;
}

static bool read_number(const wlprof_guest_t *guest, uint64_t address, uint32_t *number) {
    return guest->read(guest, address, number, sizeof *number);
}

// Copies the string that the pointer at `address` leads to, or as much of it as there is room for.
static bool read_string(const wlprof_guest_t *guest, uint64_t address, char string[LONGEST_NAME]) {
    uint32_t at;
    if (!read_number(guest, address, &at)) return false;
    for (int i = 0; i < LONGEST_NAME - 1; i++) {
        if (!guest->read(guest, at + (uint64_t)i, &string[i], 1)) return false;
        if (!string[i]) return true;
    }
    string[LONGEST_NAME - 1] = 0;
    return true;
}

// The index of a function, which is added if none of the same name is there: functions have the same index in all instances.
static uint32_t function_index(struct reader *reader, const wlprof_guest_t *guest, uint32_t address, uint32_t *index) {
    struct tiny *tiny = reader->tiny;
    uint32_t count = tiny->function_count;
    for (*index = 0; *index < count; ++*index)
        if (reader->addresses[*index] == address) return WLPROF_WALK_END_COMPLETE;
    struct function seen = {0};
    if (!read_string(guest, address + tiny->name, seen.name)) return WLPROF_WALK_END_BAD_POINTER;
    if (!read_string(guest, address + tiny->file, seen.file)) return WLPROF_WALK_END_BAD_POINTER;
    // A walk waits for nobody: whoever has the lock may have been interrupted.
    if (atomic_flag_test_and_set(&tiny->is_locked)) return WLPROF_WALK_END_BUSY;
    count = tiny->function_count;
    for (*index = 0; *index < count && memcmp(&tiny->functions[*index], &seen, sizeof seen); ++*index) {}
    bool has_room = *index < MOST_FUNCTIONS;
    if (*index == count && has_room) {
        tiny->functions[count] = seen;
        tiny->function_count = count + 1;
    }
    atomic_flag_clear(&tiny->is_locked);
    if (!has_room) return WLPROF_WALK_END_INCONSISTENT;
    reader->addresses[*index] = address;
    return WLPROF_WALK_END_COMPLETE;
}

// Whether a wasm frame is the interpreter's loop. Libraries on the same memory have functions with the same numbers.
static bool is_loop(const struct tiny *tiny, const wlprof_wasm_frame_t *frame) {
    return frame->module == 0 && frame->function == tiny->run;
}

static uint32_t walk(wlprof_walker_t *walker, const wlprof_guest_t *guest, const wlprof_wasm_frame_t *wasm,
                     size_t wasm_count, wlprof_stack_t *stack) {
    struct reader *reader = (struct reader *)walker;
    const struct tiny *tiny = reader->tiny;
    uint32_t frame;
    if (!read_number(guest, tiny->top, &frame)) return WLPROF_WALK_END_BAD_POINTER;
    if (!frame) return WLPROF_WALK_END_NO_STACK;
    // C code that the innermost function called.
    for (size_t i = 0; i < wasm_count && !is_loop(tiny, &wasm[i]) && stack->length < stack->capacity; i++)
        stack->frames[stack->length++] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_WASM, .value = i};
    while (frame) {
        if (stack->length == stack->capacity) return WLPROF_WALK_END_TOO_DEEP;
        uint32_t function, next;
        uint16_t line;
        if (!read_number(guest, frame + tiny->function, &function)) return WLPROF_WALK_END_BAD_POINTER;
        if (!read_number(guest, frame + tiny->next, &next)) return WLPROF_WALK_END_BAD_POINTER;
        if (!guest->read(guest, next - tiny->instruction_size + tiny->line, &line, sizeof line))
            return WLPROF_WALK_END_BAD_POINTER;
        uint32_t index, end = function_index(reader, guest, function, &index);
        if (end != WLPROF_WALK_END_COMPLETE) return end;
        uint64_t key = (uint64_t)index << 16 | line;
        stack->frames[stack->length++] = (wlprof_stack_frame_t){.kind = WLPROF_FRAME_KIND_OWN, .value = key};
        if (!read_number(guest, frame + tiny->caller, &frame)) return WLPROF_WALK_END_BAD_POINTER;
    }
    return WLPROF_WALK_END_COMPLETE;
}

static wlprof_bytes_t bytes(const char *string) {
    return (wlprof_bytes_t){(const uint8_t *)string, strlen(string)};
}

static void symbolize(wlprof_program_t *program, wlprof_frame_key_t frame, const wlprof_source_frames_t *frames) {
    const struct tiny *tiny = (const struct tiny *)program;
    uint64_t index = frame.value >> 16;
    if (frame.kind != WLPROF_FRAME_KIND_OWN || index >= tiny->function_count) return;
    wlprof_source_frame_t source = {
        .size = sizeof source,
        .function = bytes(tiny->functions[index].name),
        .file = bytes(tiny->functions[index].file),
        .line = (uint32_t)(frame.value & 0xffff),
    };
    frames->add(frames, &source);
}

// What to leave out of the stacks of a program: the interpreter's own functions.
static uint32_t categorize(wlprof_program_t *program, const wlprof_source_frame_t *frame) {
    (void)program;
    static const char *const own[] = {"call", "run", "trace"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (frame->function.length == strlen(own[i]) && !memcmp(frame->function.data, own[i], frame->function.length))
            return WLPROF_CATEGORY_INTERPRETER;
    return WLPROF_CATEGORY_UNKNOWN;
}

static void destroy_walker(wlprof_walker_t *walker) {
    free(walker);
}

static wlprof_walker_t *make_walker(wlprof_program_t *program) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->walker = (wlprof_walker_t){
        .size = sizeof reader->walker,
        .flags = WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING,
        .destroy = destroy_walker,
        .walk = walk,
    };
    reader->tiny = (struct tiny *)program;
    return &reader->walker;
}

static void destroy(wlprof_program_t *program) {
    free(program);
}

static bool find_run(struct tiny *tiny, const wlprof_module_t *module) {
    uint32_t start, end;
    tiny->run = module->function_import_count(module);
    while (module->function_body(module, tiny->run, &start, &end) && !is_called(module, tiny->run, "run")) tiny->run++;
    return module->function_body(module, tiny->run, &start, &end);
}

static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                                const wlprof_texts_t *error) {
    (void)language;
    struct tiny *tiny = calloc(1, sizeof *tiny);
    if (!tiny || !find_layout(tiny, module) || !find_run(tiny, module)) {
        error->add(error, TEXT("nothing says where its frames are, or which function is `run`; build it with -g"));
        free(tiny);
        return NULL;
    }
    tiny->program = (wlprof_program_t){
        .size = sizeof tiny->program,
        .destroy = destroy,
        .walker = make_walker,
        .symbolize = symbolize,
        .categorize = categorize,
    };
    return &tiny->program;
}

static const wlprof_language_t tiny_language = {
    .size = sizeof tiny_language,
    .name = WLPROF_BYTES("tiny"),
    .detect = detect,
    .attach = attach,
};

static const wlprof_language_t *const languages[] = {&tiny_language};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WLPROF_ABI_MINOR,
    .size = sizeof wlprof_plugin,
    .name = WLPROF_BYTES("tiny"),
    .version = WLPROF_BYTES("0.1.0"),
    .languages = languages,
    .language_count = 1,
};
