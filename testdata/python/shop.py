"""Methods, a generator, C code that calls back, and recursion, for pages that show a profile. Prints a checksum."""


class Shop:
    def price(self, name):
        return sum(ord(letter) for letter in name)

    def cheapest(self, names):
        return min(names, key=self.price)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def main():
    names = [str(i) * 20 for i in range(5000)]
    for _ in range(25):
        name = Shop().cheapest(names)
    print(name[0], fib(29))


main()
