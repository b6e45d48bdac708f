// Proves C++ names, line numbers and inlining: nearly all time is on the line marked HOT, in the
// method `lab::Table<T>::mix_cell`, inlined into the template `lab::mix_row<T>`, inlined into the
// method `lab::Table<T>::mix`; `lab::cold` costs about a tenth of it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lab {

template <typename T> struct Table {
    static constexpr uint32_t cells = 4096;
    T cell[cells] = {};

    __attribute__((always_inline)) inline void mix_cell(uint32_t i, T key) {
        cell[i] = (cell[(i * 7 + key) % cells] ^ (cell[i] + key)) * 2654435761u; // HOT
    }

    void mix(T key);
};

template <typename T>
__attribute__((always_inline)) inline void mix_row(Table<T> &table, uint32_t start, T key) {
    for (uint32_t i = start; i < start + 64; i++) {
        table.mix_cell(i, key);
    }
}

template <typename T> __attribute__((noinline)) void Table<T>::mix(T key) {
    for (uint32_t start = 0; start < cells; start += 64) {
        mix_row(*this, start, key);
    }
}

template <typename T> __attribute__((noinline)) T cold(const Table<T> &table, T key) {
    T sum = key;
    for (uint32_t i = 0; i < Table<T>::cells / 8; i++) {
        sum = (sum ^ table.cell[i * 8]) * 2654435761u; // COLD
    }
    return sum;
}

} // namespace lab

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? std::atoi(argv[1]) : 1;
    static lab::Table<uint32_t> table;
    uint32_t sum = 1;
    for (uint32_t round = 0; round < 150000u * multiplier; round++) {
        table.mix(sum);
        sum = lab::cold(table, sum);
    }
    std::printf("inlined %08x\n", sum);
    return 0;
}
