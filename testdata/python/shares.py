"""Three lines of known shares of the time: 75, 20 and 5 in 100. Prints a checksum."""
import sys

DATA = list(range(1000))


def work(rounds):
    total = 0
    for _ in range(rounds):
        total += sum(map(sum, [DATA] * 15))
        total -= sum(map(sum, [DATA] * 4))
        total += sum(map(sum, [DATA] * 1))
    return total


print(work(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
