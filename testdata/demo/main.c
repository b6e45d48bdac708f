// The demo guest: draws a fractal, then counts words. Something to profile right after building
// wlprof, with no other toolchain at hand. `cargo xtask demo` rebuilds demo.wasm from this folder.
#include <stdint.h>

#include "mandelbrot.h"
#include "words.h"

__attribute__((noinline)) static void fractal(void) {
    draw_mandelbrot(-0.6, 0, 3);
    draw_mandelbrot(-0.7453, 0.1127, 0.0065);
}

__attribute__((noinline)) static void words(void) {
    for (uint64_t chapter = 1; chapter <= 24; chapter++) {
        make_text(chapter * 88172645463325252u);
        count_words();
    }
    sort_words();
    print_most_frequent(10);
}

__attribute__((export_name("_start"))) void start(void) {
    fractal();
    words();
}
