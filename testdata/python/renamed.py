"""Makes code that differs from other code at the same place in nothing but its name, and runs it. Prints a checksum."""
import types


def template(n):
    total = 0
    for i in range(n):
        total += i
    return total


def made(name, n):
    code = template.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, {"range": range})(n)


def call_alpha(k):
    return made(f"alpha_{k}", 3000)


def call_betaa(k):
    return made(f"betaa_{k}", 3000)


print(sum(call_alpha(k % 7) + call_betaa(k % 7) for k in range(1500)))
