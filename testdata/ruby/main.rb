# Works for a moment: recursion, blocks, hashes, strings and garbage.
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)

puts RUBY_VERSION
puts fib(24)
words = Hash.new(0)
100_000.times { |i| words["w#{i % 997}"] += i }
puts words.size, words.values.sum
