// Counting the words of a made-up text: a hash table, a quicksort, and memory from an arena that
// grows as it fills.
#include "words.h"

#include <stddef.h>

#include "print.h"

enum { TEXT_LENGTH = 4 << 20, BUCKETS = 1 << 14, PAGE = 65536 };

struct word {
    struct word *next;
    const char *start;
    size_t length;
    uint32_t count;
};

static char *text;
static struct word *buckets[BUCKETS];
static struct word **sorted;
static uint32_t distinct;

extern char __heap_base;

static void *allocate(size_t size) {
    static size_t top;
    if (top == 0) {
        top = (size_t)&__heap_base;
    }
    size_t start = (top + 7) & ~(size_t)7;
    top = start + size;
    size_t have = __builtin_wasm_memory_size(0) * PAGE;
    if (top > have) {
        __builtin_wasm_memory_grow(0, (top - have + PAGE - 1) / PAGE);
    }
    return (void *)start;
}

static inline uint32_t roll(uint64_t *dice, uint32_t sides) {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    return (uint32_t)(*dice >> 33) % sides;
}

// Short words are common and long ones rare, much as in a real language.
__attribute__((noinline)) void make_text(uint64_t seed) {
    static const char *const syllables[] = {"la", "to", "mi", "re", "su", "an", "ke", "vo"};
    if (!text) {
        text = allocate(TEXT_LENGTH + 1);
    }
    size_t at = 0;
    while (at < TEXT_LENGTH - 12) {
        uint32_t count = 1;
        while (count < 5 && roll(&seed, 3) != 0) {
            count++;
        }
        for (; count > 0; count--) {
            const char *syllable = syllables[roll(&seed, 8)];
            text[at++] = syllable[0];
            text[at++] = syllable[1];
        }
        text[at++] = ' ';
    }
    text[at] = 0;
}

static inline uint32_t hash(const char *start, size_t length) {
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        sum = (sum ^ (uint8_t)start[i]) * 16777619u;
    }
    return sum;
}

static inline int same_letters(const char *a, const char *b, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (a[i] != b[i]) {
            return 0;
        }
    }
    return 1;
}

__attribute__((noinline)) static struct word *find_word(const char *start, size_t length) {
    struct word **bucket = &buckets[hash(start, length) % BUCKETS];
    for (struct word *word = *bucket; word; word = word->next) {
        if (word->length == length && same_letters(word->start, start, length)) {
            return word;
        }
    }
    // The letters are copied, as the next chapter's text overwrites this one's.
    char *letters = allocate(length);
    for (size_t i = 0; i < length; i++) {
        letters[i] = start[i];
    }
    struct word *word = allocate(sizeof *word);
    *word = (struct word){*bucket, letters, length, 0};
    *bucket = word;
    distinct++;
    return word;
}

__attribute__((noinline)) void count_words(void) {
    const char *at = text;
    while (*at) {
        const char *start = at;
        while (*at != ' ') {
            at++;
        }
        find_word(start, (size_t)(at - start))->count++;
        at++;
    }
}

static int comes_before(const struct word *a, const struct word *b) {
    if (a->count != b->count) {
        return a->count > b->count;
    }
    size_t shorter = a->length < b->length ? a->length : b->length;
    for (size_t i = 0; i < shorter; i++) {
        if (a->start[i] != b->start[i]) {
            return a->start[i] < b->start[i];
        }
    }
    return a->length < b->length;
}

__attribute__((noinline)) static void quicksort(struct word **words, int32_t count) {
    if (count < 2) {
        return;
    }
    struct word *pivot = words[count / 2];
    int32_t low = 0, high = count - 1;
    while (low <= high) {
        while (comes_before(words[low], pivot)) {
            low++;
        }
        while (comes_before(pivot, words[high])) {
            high--;
        }
        if (low <= high) {
            struct word *swapped = words[low];
            words[low++] = words[high];
            words[high--] = swapped;
        }
    }
    quicksort(words, high + 1);
    quicksort(words + low, count - low);
}

__attribute__((noinline)) void sort_words(void) {
    sorted = allocate(distinct * sizeof *sorted);
    uint32_t count = 0;
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        for (struct word *word = buckets[bucket]; word; word = word->next) {
            sorted[count++] = word;
        }
    }
    quicksort(sorted, (int32_t)count);
}

__attribute__((noinline)) void print_most_frequent(uint32_t how_many) {
    for (uint32_t i = 0; i < how_many && i < distinct; i++) {
        print_padded(sorted[i]->start, sorted[i]->length, 12);
        print_number(sorted[i]->count, 8);
        print_newline();
    }
    print_padded("distinct", 8, 12);
    print_number(distinct, 8);
    print_newline();
}
