// Allocates in each way that C has, and counts what it does, by the function that does it: what an allocation profiler has to
// find. Prints of each function: its name, allocations, their bytes, and what of both is still held at the end. Takes the
// number of rounds, and `in-vain` if there are to be allocations that fail.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct site {
    const char *name;
    uint64_t allocations, bytes, blocks_held, bytes_held;
};

struct block {
    void *memory;
    size_t size;
    struct site *site;
};

enum { KEPT = 512 };
static struct block kept[KEPT];
static uint32_t state = 12345;

static uint32_t below(uint32_t end) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % end;
}

static void count(struct site *site, size_t size) {
    site->allocations++;
    site->bytes += size;
    site->blocks_held++;
    site->bytes_held += size;
}

static void forget(struct block *block) {
    block->site->blocks_held--;
    block->site->bytes_held -= block->size;
    block->memory = NULL;
}

__attribute__((noinline)) static void release(struct block *block) {
    free(block->memory);
    forget(block);
}

// Keeps a block in a place whose last block goes, so that some live long and others do not.
static void keep(void *memory, size_t size, struct site *site) {
    if (memory == NULL) {
        return;
    }
    struct block *block = &kept[below(4) ? below(KEPT / 16) : below(KEPT)];
    if (block->memory != NULL) {
        release(block);
    }
    count(site, size);
    *block = (struct block){memory, size, site};
}

static struct site malloc_site = {.name = "by_malloc"};
__attribute__((noinline)) static void by_malloc(size_t size) { keep(malloc(size), size, &malloc_site); }

static struct site calloc_site = {.name = "by_calloc"};
__attribute__((noinline)) static void by_calloc(size_t size) { keep(calloc(3, size), 3 * size, &calloc_site); }

static struct site aligned_site = {.name = "by_aligned_alloc"};
__attribute__((noinline)) static void by_aligned_alloc(size_t size) {
    size = (size + 63) / 64 * 64;
    keep(aligned_alloc(64, size), size, &aligned_site);
}

static struct site posix_site = {.name = "by_posix_memalign"};
__attribute__((noinline)) static void by_posix_memalign(size_t size) {
    void *memory = NULL;
    if (posix_memalign(&memory, 32, size) == 0) {
        keep(memory, size, &posix_site);
    }
}

// Makes blocks of others larger or smaller, and begins some.
static struct site realloc_site = {.name = "by_realloc"};
__attribute__((noinline)) static void by_realloc(size_t size) {
    struct block *block = &kept[below(KEPT)];
    void *memory = realloc(block->memory, size);
    if (memory == NULL) {
        return;
    }
    if (block->memory != NULL) {
        forget(block);
    }
    count(&realloc_site, size);
    *block = (struct block){memory, size, &realloc_site};
}

// More than there is, if whoever runs this sees to that; of it nothing is to be found then.
static volatile size_t too_much = (size_t)0x70000000;
// The compiler takes it that there is as much as one likes, as long as nobody looks at what was given.
static void *volatile given;
__attribute__((noinline)) static void in_vain(void) {
    given = malloc(too_much);
    if (given == NULL) {
        given = calloc(too_much / 4, 4);
    }
    if (given == NULL) {
        given = realloc(kept[below(KEPT)].memory, too_much);
    }
    if (given != NULL) {
        puts("there is more memory than there was to be");
        exit(1);
    }
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (long round = 0; round < rounds; round++) {
        size_t size = 1 + (below(20) ? below(200) : below(20000));
        switch (below(6)) {
        case 0: by_calloc(size); break;
        case 1: by_aligned_alloc(size); break;
        case 2: by_posix_memalign(size); break;
        case 3: by_realloc(size); break;
        default: by_malloc(size);
        }
        if (argc > 2 && below(100) == 0) {
            in_vain();
        }
    }
    struct site *sites[] = {&malloc_site, &calloc_site, &aligned_site, &posix_site, &realloc_site};
    for (size_t site = 0; site < sizeof sites / sizeof *sites; site++) {
        struct site *s = sites[site];
        printf("%s %llu %llu %llu %llu\n", s->name, (unsigned long long)s->allocations, (unsigned long long)s->bytes,
               (unsigned long long)s->blocks_held, (unsigned long long)s->bytes_held);
    }
    return 0;
}
