// Proves C++ name demangling over the usual range: namespaces, an anonymous one, templates,
// virtual calls, lambdas, operators, std::vector, std::sort, std::map.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace geometry {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual const char *kind() const = 0;
};

struct Circle final : Shape {
    double radius;
    explicit Circle(double r) : radius(r) {}
    __attribute__((noinline)) double area() const override {
        double sum = 0;
        for (int i = 0; i < 200; i++) { // slices of a quarter circle, to give it some work
            double x = radius * i / 200;
            sum += __builtin_sqrt(radius * radius - x * x) * radius / 200;
        }
        return 4 * sum;
    }
    const char *kind() const override { return "circle"; }
};

struct Polygon final : Shape {
    std::vector<std::pair<double, double>> corners;
    __attribute__((noinline)) double area() const override {
        double twice = 0;
        for (size_t i = 0; i < corners.size(); i++) {
            auto [x0, y0] = corners[i];
            auto [x1, y1] = corners[(i + 1) % corners.size()];
            twice += x0 * y1 - x1 * y0;
        }
        return twice / 2;
    }
    const char *kind() const override { return "polygon"; }
};

} // namespace geometry

namespace {

struct Dice {
    uint64_t state;
    __attribute__((noinline)) uint32_t operator()(uint32_t sides) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint32_t)(state >> 32) % sides;
    }
};

template <typename Items, typename Measure>
__attribute__((noinline)) double total(const Items &items, Measure measure) {
    double sum = 0;
    for (const auto &item : items) {
        sum += measure(item);
    }
    return sum;
}

using Shapes = std::vector<std::unique_ptr<geometry::Shape>>;

__attribute__((noinline)) Shapes draw(Dice &dice, size_t count) {
    Shapes shapes;
    for (size_t i = 0; i < count; i++) {
        if (dice(2) == 0) {
            shapes.push_back(std::make_unique<geometry::Circle>(1.0 + dice(100)));
        } else {
            auto polygon = std::make_unique<geometry::Polygon>();
            for (uint32_t corner = 0, corners = 3 + dice(40); corner < corners; corner++) {
                polygon->corners.emplace_back(dice(100), dice(100));
            }
            shapes.push_back(std::move(polygon));
        }
    }
    return shapes;
}

} // namespace

int main(int argc, char **argv) {
    int multiplier = argc > 1 ? std::atoi(argv[1]) : 1;
    Dice dice{88172645463325252u};
    double sum = 0;
    std::map<std::string, int> kinds;
    for (int round = 0; round < 14 * multiplier; round++) {
        Shapes shapes = draw(dice, 4000);
        sum += total(shapes, [](const auto &shape) { return shape->area(); });
        std::sort(shapes.begin(), shapes.end(),
                  [](const auto &a, const auto &b) { return a->area() < b->area(); });
        for (const auto &shape : shapes) {
            kinds[std::string(shape->kind()) + std::to_string((int)shape->area() % 50)]++;
        }
    }
    std::printf("shapes %.3f kinds %zu\n", sum, kinds.size());
    return 0;
}
