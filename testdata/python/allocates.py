# Makes objects, strings and lists for as many rounds as it is told, and keeps some of them for a while: for `cargo xtask bench`.
import sys


class Node:
    __slots__ = ("left", "right", "value")

    def __init__(self, left, right, value):
        self.left, self.right, self.value = left, right, value


def tree(depth):
    if depth == 0:
        return Node(None, None, "x" * 20)
    return Node(tree(depth - 1), tree(depth - 1), [depth, str(depth)])


def words(count):
    found = {}
    for number in range(count):
        key = "w" + str(number % 5000)
        found[key] = found.get(key, 0) + 1
    return found


kept = []
for _ in range(int(sys.argv[1])):
    kept.append(tree(11))
    words(30000)
    if len(kept) > 3:
        kept.pop(0)
print(len(kept))
