// A plugin that takes every guest for its own, a language whose programs look for a library. Their stacks are wasm's.
#include "wlprof_plugin.h"
#include <stdlib.h>

static void destroy(wlprof_program_t *program) {
    free(program);
}

static wlprof_program_t *attach(const wlprof_language_t *language, const wlprof_module_t *module,
                               const wlprof_texts_t *error) {
    (void)language, (void)module, (void)error;
    wlprof_program_t *program = calloc(1, sizeof *program);
    *program = (wlprof_program_t){.size = sizeof *program, .destroy = destroy};
    return program;
}

static uint32_t detect(const wlprof_language_t *language, const wlprof_module_t *module, const wlprof_texts_t *answer) {
    (void)language, (void)module;
    answer->add(answer, (wlprof_bytes_t)WLPROF_BYTES("a reader"));
    return WLPROF_DETECTION_YES;
}

static void library_folder(const wlprof_language_t *language, const wlprof_texts_t *library) {
    (void)language;
    library->add(library, (wlprof_bytes_t)WLPROF_BYTES("/usr/books"));
    library->add(library, (wlprof_bytes_t)WLPROF_BYTES("index"));
    library->add(library, (wlprof_bytes_t)WLPROF_BYTES("shelf/book"));
}

static const wlprof_language_t reader = {
    .size = sizeof reader,
    .name = WLPROF_BYTES("reader"),
    .detect = detect,
    .attach = attach,
    .library_folder = library_folder,
};

static const wlprof_language_t *const languages[] = {&reader};

const wlprof_plugin_t wlprof_plugin = {
    .magic = WLPROF_PLUGIN_MAGIC,
    .abi_major = WLPROF_ABI_MAJOR,
    .abi_minor = WLPROF_ABI_MINOR,
    .size = sizeof wlprof_plugin,
    .name = WLPROF_BYTES("reader"),
    .version = WLPROF_BYTES("1.0"),
    .languages = languages,
    .language_count = 1,
};
