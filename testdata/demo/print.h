// Printing to standard output, one host call a line.
#ifndef DEMO_PRINT_H
#define DEMO_PRINT_H

#include <stddef.h>
#include <stdint.h>

void print_text(const char *text, size_t length);
void print_padded(const char *text, size_t length, size_t width);
void print_number(uint32_t number, size_t width);
void print_newline(void);

#endif
