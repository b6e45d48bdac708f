// Data of every kind that a plugin may ask for by name. Prints where it all is, by the compiler's own account:
//   variable NAME ADDRESS · member STRUCTURE NAME OFFSET SIZE FIRST-BIT BITS · type NAME SIZE · enumerator NAME VALUE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum color { RED, GREEN = 40, BLUE };
enum { NAMELESS_ENUMERATOR = -7 };
enum wide { WIDE = 0xfffffffeU };

struct header {
    uint16_t kind;
    const uint64_t count;
};

union value {
    double number;
    char text[12];
};

struct object {
    struct object *next;
    struct header header;
    uint32_t length : 31;
    uint32_t is_wide : 1;
    uint8_t low : 3, middle : 4;
    union value value;
    union {
        int integer;
        struct {
            short first, second;
        };
    };
    volatile enum color colors[2][3];
    uint8_t trailing[];
};

struct __attribute__((packed)) packed {
    uint32_t first : 20, second : 20;
};

typedef struct {
    char tag;
    struct object *objects;
} const heap;
typedef heap heap_alias;

struct object *objects = NULL;
static volatile int static_variable = 5;
struct packed packed_bits = {1, 2};
heap_alias the_heap = {'t', NULL};

static void print_member(const char *structure, const char *name, size_t offset, size_t size, int first, int bits) {
    printf("member %s %s %zu %zu %d %d\n", structure, name, offset, size, first, bits);
}

#define MEMBER(structure, name) \
    print_member(#structure, #name, offsetof(struct structure, name), sizeof(((struct structure *)0)->name), 0, 0)

// Which bits of the structure change with the field; then the unit of `type` that they lie in.
#define BITS(name, type)                                                                  \
    do {                                                                                  \
        static unsigned char bytes[sizeof(struct object)];                                \
        memset(bytes, 0, sizeof bytes);                                                   \
        ((struct object *)bytes)->name = -1;                                              \
        int first = -1, bits = 0;                                                         \
        for (int bit = 0; bit < (int)sizeof bytes * 8; bit++)                             \
            if (bytes[bit / 8] >> bit % 8 & 1) first = first < 0 ? bit : first, bits++;   \
        int unit = sizeof(type) * 8;                                                      \
        print_member("object", #name, first / unit * sizeof(type), sizeof(type), first % unit, bits); \
    } while (0)

int main(void) {
    static int counter;
    counter = static_variable;
    printf("variable objects %zu\n", (size_t)&objects);
    printf("variable static_variable %zu\n", (size_t)&static_variable);
    printf("variable counter %zu\n", (size_t)&counter);
    printf("variable the_heap %zu\n", (size_t)&the_heap);
    MEMBER(header, kind);
    MEMBER(header, count);
    MEMBER(object, next);
    MEMBER(object, header);
    MEMBER(object, header.count);
    MEMBER(object, value.text);
    MEMBER(object, integer);
    MEMBER(object, second);
    MEMBER(object, colors);
    print_member("object", "trailing", offsetof(struct object, trailing), 0, 0, 0);
    BITS(length, uint32_t);
    BITS(is_wide, uint32_t);
    BITS(low, uint8_t);
    BITS(middle, uint8_t);
    print_member("heap", "objects", offsetof(heap, objects), sizeof(the_heap.objects), 0, 0);
    print_member("heap_alias", "tag", offsetof(heap_alias, tag), sizeof(the_heap.tag), 0, 0);
    printf("type header %zu\n", sizeof(struct header));
    printf("type object %zu\n", sizeof(struct object));
    printf("type value %zu\n", sizeof(union value));
    printf("type color %zu\n", sizeof(enum color));
    printf("type heap_alias %zu\n", sizeof(heap_alias));
    printf("type uint64_t %zu\n", sizeof(uint64_t));
    printf("enumerator RED %lld\n", (long long)RED);
    printf("enumerator BLUE %lld\n", (long long)BLUE);
    printf("enumerator NAMELESS_ENUMERATOR %lld\n", (long long)NAMELESS_ENUMERATOR);
    printf("enumerator WIDE %lld\n", (long long)WIDE);
    return objects != NULL || packed_bits.second != 2;
}
