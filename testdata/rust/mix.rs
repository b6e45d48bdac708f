//! Proves Rust names in both manglings: generics, dyn traits, closures, iterators, HashMap,
//! recursion, modules. Built twice: rust-mix (legacy) and rust-mix-v0 (v0 mangling, DWARF 5).

use std::collections::HashMap;

mod tree {
    #[derive(Default)]
    pub struct Node<K> {
        key: K,
        children: [Option<Box<Node<K>>>; 2],
    }

    impl<K: Ord + Default> Node<K> {
        #[inline(never)]
        pub fn insert(slot: &mut Option<Box<Node<K>>>, key: K) {
            match slot {
                None => *slot = Some(Box::new(Node { key, children: Default::default() })),
                Some(node) if key == node.key => {}
                Some(node) => Self::insert(&mut node.children[usize::from(key > node.key)], key),
            }
        }

        #[inline(never)]
        pub fn depth(slot: &Option<Box<Node<K>>>) -> usize {
            slot.as_ref().map_or(0, |node| 1 + node.children.iter().map(Self::depth).max().unwrap())
        }
    }
}

trait Shape {
    fn area(&self) -> f64;
}

struct Circle(f64);
struct Square(f64);

impl Shape for Circle {
    #[inline(never)]
    fn area(&self) -> f64 {
        (1..100).map(|slice| self.0 * self.0 / f64::from(slice)).sum()
    }
}

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % sides
    }
}

#[inline(never)]
fn total_area(shapes: &[Box<dyn Shape>]) -> f64 {
    shapes.iter().map(|shape| shape.area()).sum()
}

#[inline(never)]
fn count_words(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split(' ') {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

#[inline(never)]
fn fib(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fib(n - 1) + fib(n - 2) }
}

#[inline(never)]
fn apply<T, F: Fn(T) -> T>(times: usize, mut value: T, f: F) -> T {
    for _ in 0..times {
        value = f(value);
    }
    value
}

fn main() {
    let multiplier: usize = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());
    let mut dice = Dice(88172645463325252);
    let text: String =
        (0..20_000).map(|_| format!("word{} ", dice.roll(500))).collect();
    let mut checksum = 0u64;
    for _ in 0..75 * multiplier {
        let shapes: Vec<Box<dyn Shape>> = (0..20_000)
            .map(|_| -> Box<dyn Shape> {
                let size = dice.roll(100) as f64;
                if dice.roll(2) == 0 { Box::new(Circle(size)) } else { Box::new(Square(size)) }
            })
            .collect();
        checksum = checksum.wrapping_add(total_area(&shapes) as u64);

        let counts = count_words(&text);
        let mut order: Vec<_> = counts.into_iter().collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        checksum = order.iter().fold(checksum, |sum, (_, n)| sum.wrapping_mul(31).wrapping_add(*n as u64));

        let mut root = None;
        for _ in 0..20_000 {
            tree::Node::insert(&mut root, dice.roll(1 << 20));
        }
        checksum = checksum.wrapping_add(tree::Node::depth(&root) as u64).wrapping_add(fib(25));
        checksum = apply(1_000_000, checksum, |x| (x ^ (x >> 3)).wrapping_mul(0x9e3779b97f4a7c15));
    }
    println!("mix {checksum:016x}");
}
