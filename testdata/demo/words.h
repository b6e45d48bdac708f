// Counting the words of a made-up text.
#ifndef DEMO_WORDS_H
#define DEMO_WORDS_H

#include <stdint.h>

void make_text(uint64_t seed);
void count_words(void);
void sort_words(void);
void print_most_frequent(uint32_t how_many);

#endif
