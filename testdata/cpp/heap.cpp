// Allocates in the ways that C++ has, and counts what it does, by the function that does it: what an allocation profiler has
// to find. Prints of each function: its name, allocations, their bytes, and what of both is still held at the end. Takes the
// number of rounds.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

struct Site {
    const char *name;
    uint64_t allocations = 0, bytes = 0, blocks_held = 0, bytes_held = 0;

    void count(size_t size) {
        allocations++;
        bytes += size;
        blocks_held++;
        bytes_held += size;
    }
    void forget(size_t size) {
        blocks_held--;
        bytes_held -= size;
    }
};

uint32_t state = 12345;
uint32_t below(uint32_t end) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % end;
}

// Whatever frees a block, and what is to be counted then.
struct Kept {
    std::function<void()> free;
};
// What std::function keeps of these closures is within it: two pointers.
std::array<Kept, 256> kept;

template <typename Free> void keep(Free free) {
    static_assert(sizeof(Free) <= 2 * sizeof(void *));
    Kept &place = kept[below(kept.size())];
    if (place.free) {
        place.free();
    }
    place.free = free;
}

struct Small {
    uint64_t values[5];
};
struct alignas(64) Aligned {
    char values[192];
};

Site one{"one_object"}, array{"an_array"}, aligned{"an_aligned_object"}, nothrow{"a_nothrow_array"}, text{"a_string"},
    growing{"a_growing_vector"}, tree{"nodes_of_a_map"};

__attribute__((noinline)) void one_object(size_t size) {
    Small *small = new Small{{size}};
    one.count(sizeof *small);
    keep([small] { one.forget(sizeof *small); delete small; });
}

__attribute__((noinline)) void an_array(size_t size) {
    char *bytes = new char[size];
    array.count(size);
    keep([bytes, size] { array.forget(size); delete[] bytes; });
}

__attribute__((noinline)) void an_aligned_object(size_t size) {
    Aligned *object = new Aligned{{char(size)}};
    aligned.count(sizeof *object);
    keep([object] { aligned.forget(sizeof *object); delete object; });
}

__attribute__((noinline)) void a_nothrow_array(size_t size) {
    char *bytes = new (std::nothrow) char[size];
    nothrow.count(size);
    keep([bytes, size] { nothrow.forget(size); delete[] bytes; });
}

// How many bytes a string has asked for; short ones are within the object.
size_t asked(const std::string &string) {
    const char *object = reinterpret_cast<const char *>(&string);
    bool within = string.data() >= object && string.data() < object + sizeof string;
    return within ? 0 : string.capacity() + 1;
}

std::string strings[64];
__attribute__((noinline)) void a_string(size_t size) {
    std::string &string = strings[below(64)];
    if (size_t had = asked(string)) {
        text.forget(had);
    }
    string = std::string(size, 'x');
    if (size_t has = asked(string)) {
        text.count(has);
    }
}

std::vector<uint32_t> vectors[64];
__attribute__((noinline)) void a_growing_vector(size_t size) {
    std::vector<uint32_t> &vector = vectors[below(64)];
    if (vector.size() > 4000) {
        growing.forget(vector.capacity() * sizeof vector[0]);
        std::vector<uint32_t>().swap(vector);
    }
    for (size_t more = 0; more < size % 100; more++) {
        size_t had = vector.capacity();
        vector.push_back(more);
        if (vector.capacity() != had) {
            if (had) {
                growing.forget(had * sizeof vector[0]);
            }
            growing.count(vector.capacity() * sizeof vector[0]);
        }
    }
}

// Allocates as the standard's own does, and counts.
template <typename T> struct Counting : std::allocator<T> {
    template <typename U> struct rebind { using other = Counting<U>; };
    Counting() = default;
    template <typename U> Counting(const Counting<U> &) {}
    T *allocate(size_t n) {
        tree.count(n * sizeof(T));
        return std::allocator<T>::allocate(n);
    }
    void deallocate(T *block, size_t n) {
        tree.forget(n * sizeof(T));
        std::allocator<T>::deallocate(block, n);
    }
};
std::map<uint32_t, uint64_t, std::less<>, Counting<std::pair<const uint32_t, uint64_t>>> ordered;
__attribute__((noinline)) void nodes_of_a_map(size_t size) {
    ordered[below(1000)] += size;
    ordered.erase(below(1000));
}

} // namespace

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (long round = 0; round < rounds; round++) {
        size_t size = 1 + (below(20) ? below(200) : below(20000));
        switch (below(7)) {
        case 0: one_object(size); break;
        case 1: an_array(size); break;
        case 2: an_aligned_object(size); break;
        case 3: a_nothrow_array(size); break;
        case 4: a_string(size); break;
        case 5: a_growing_vector(size); break;
        default: nodes_of_a_map(size);
        }
    }
    for (Site *site : {&one, &array, &aligned, &nothrow, &text, &growing, &tree}) {
        printf("%s %llu %llu %llu %llu\n", site->name, (unsigned long long)site->allocations,
               (unsigned long long)site->bytes, (unsigned long long)site->blocks_held,
               (unsigned long long)site->bytes_held);
    }
    fflush(stdout);
    _Exit(0); // before anything is taken down
}
