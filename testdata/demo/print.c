// Collects a line and hands it to the host when it is complete.
#include "print.h"
#include "wasi.h"

static char line[256];
static size_t used;

void print_text(const char *text, size_t length) {
    for (size_t i = 0; i < length && used < sizeof line - 1; i++) {
        line[used++] = text[i];
    }
}

void print_padded(const char *text, size_t length, size_t width) {
    print_text(text, length);
    for (; length < width; length++) {
        print_text(" ", 1);
    }
}

void print_number(uint32_t number, size_t width) {
    char digits[10];
    size_t count = 0;
    do {
        digits[sizeof digits - ++count] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    for (size_t i = count; i < width; i++) {
        print_text(" ", 1);
    }
    print_text(digits + sizeof digits - count, count);
}

void print_newline(void) {
    line[used++] = '\n';
    struct wasi_slice slice = {line, used};
    size_t written;
    wasi_fd_write(1, &slice, 1, &written);
    used = 0;
}
