// The Mandelbrot set, drawn in ASCII: one character a point, each the average of 64 samples.
#include "mandelbrot.h"

#include <stdint.h>

#include "print.h"

enum { COLUMNS = 78, ROWS = 28, ITERATIONS = 2000, SAMPLES = 8 };

struct complex {
    double re, im;
};

static inline struct complex square_and_add(struct complex z, struct complex c) {
    return (struct complex){
        z.re * z.re - z.im * z.im + c.re,
        2 * z.re * z.im + c.im,
    };
}

static inline int has_escaped(struct complex z) {
    return z.re * z.re + z.im * z.im > 4;
}

__attribute__((noinline)) static uint32_t escape_time(struct complex c) {
    struct complex z = {0, 0};
    uint32_t n = 0;
    while (n < ITERATIONS && !has_escaped(z)) {
        z = square_and_add(z, c);
        n++;
    }
    return n;
}

static char shade(uint32_t escape_times) {
    static const char shades[] = " .:-=+*%@#";
    uint32_t level = 0;
    for (uint32_t n = escape_times / (SAMPLES * SAMPLES); n > 8 && level < 9; n = n * 5 / 9) {
        level++;
    }
    return shades[level];
}

__attribute__((noinline)) static void draw_row(double left, double top, double step) {
    char row[COLUMNS];
    for (int column = 0; column < COLUMNS; column++) {
        uint32_t sum = 0;
        for (int sample = 0; sample < SAMPLES * SAMPLES; sample++) {
            sum += escape_time((struct complex){
                left + step * (column + (double)(sample % SAMPLES) / SAMPLES),
                top + 2 * step * ((double)(sample / SAMPLES) / SAMPLES),
            });
        }
        row[column] = shade(sum);
    }
    print_text(row, COLUMNS);
    print_newline();
}

__attribute__((noinline)) void draw_mandelbrot(double center_x, double center_y, double width) {
    double step = width / COLUMNS;
    double left = center_x - width / 2;
    double top = center_y - step * ROWS;
    for (int row = 0; row < ROWS; row++) {
        draw_row(left, top + 2 * step * row, step);
    }
}
