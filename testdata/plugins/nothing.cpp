// A plugin in C++ that knows no guest: the header is for C++ as well.
#include "wlprof_plugin.h"

static uint32_t detect(const wlprof_language_t *, const wlprof_module_t *, const wlprof_texts_t *) {
    return WLPROF_DETECTION_NO;
}

static wlprof_program_t *attach(const wlprof_language_t *, const wlprof_module_t *, const wlprof_texts_t *) {
    return nullptr;
}

static const wlprof_language_t nothing = {
    sizeof(wlprof_language_t), WLPROF_BYTES("nothing"), detect, attach, nullptr,
};
static const wlprof_language_t *const languages[] = {&nothing};

const wlprof_plugin_t wlprof_plugin = {
    WLPROF_PLUGIN_MAGIC, WLPROF_ABI_MAJOR, WLPROF_ABI_MINOR, sizeof(wlprof_plugin_t),
    WLPROF_BYTES("nothing"), WLPROF_BYTES("1.0"), languages, 1,
};
