// Data as C++ has it, for plugins that ask for it by name; prints what c/layout.c does.
#include <cstddef>
#include <cstdio>

struct Named {
    const char *name = "counter";
};

class Counter : public Named {
  public:
    static volatile int total;
    long long steps = 0;
};

volatile int Counter::total = 7;

namespace inner {
Counter counter;
}

int main() {
    std::printf("variable total %zu\n", reinterpret_cast<std::size_t>(&Counter::total));
    std::printf("variable counter %zu\n", reinterpret_cast<std::size_t>(&inner::counter));
    auto offset = [](void *member) { return static_cast<char *>(member) - reinterpret_cast<char *>(&inner::counter); };
    std::printf("member Counter name %td %zu 0 0\n", offset(&inner::counter.name), sizeof inner::counter.name);
    std::printf("member Counter steps %td %zu 0 0\n", offset(&inner::counter.steps), sizeof inner::counter.steps);
    std::printf("type Counter %zu\n", sizeof(Counter));
    return Counter::total - 7;
}
