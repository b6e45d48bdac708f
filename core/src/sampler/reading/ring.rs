//! The ring that carries samples out of the signal handler: one producer, one consumer, no lock, no allocation.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wlprof_walk::MAX_FRAMES;

/// Words that one record may have.
pub(in crate::sampler) const MAX_RECORD: usize = super::record::MAX_WORDS;
/// Words that the ring holds: 4 MiB, or half a second of 30-frame samples at 20 kHz.
const CAPACITY: usize = 1 << 19;

/// A ring of records, each some 64-bit words, the first of which is the record's length.
pub(in crate::sampler) struct Ring {
    /// Longer than the capacity by one record: a record that begins before the end is written on past it in one piece,
    /// and the next one begins as far after the start.
    words: Box<[UnsafeCell<u64>]>,
    /// Words ever written; owned by the producer.
    head: AtomicUsize,
    /// Words ever read; owned by the consumer.
    tail: AtomicUsize,
}

// SAFETY: the producer writes only words between head and tail + CAPACITY, the consumer reads only words between tail
// and head, and each publishes its counter with Release after it is done with the words. That there is at most one
// producer and one consumer at a time is the contract of `push` and `pop`.
unsafe impl Sync for Ring {}

impl Ring {
    pub(in crate::sampler) fn new() -> Self {
        Self {
            // SAFETY: zeroes are words. They take no memory before they are written: most threads have few samples.
            words: unsafe { Box::<[UnsafeCell<u64>]>::new_zeroed_slice(CAPACITY + MAX_RECORD).assume_init() },
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
        }
    }

    /// Lets `write` fill a record and says whether there was room for one. `write` returns the record's length, which
    /// this puts into the record's first word.
    ///
    /// # Safety
    /// No other `push` may be going on, on any thread, and the last one must have happened before.
    pub(in crate::sampler) unsafe fn push(&self, write: impl FnOnce(&mut [u64]) -> usize) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head - self.tail.load(Ordering::Acquire) > CAPACITY - MAX_RECORD {
            return false;
        }
        let first = self.words[head % CAPACITY..][..MAX_RECORD].as_ptr();
        // SAFETY: the words are inside the box (the slicing checked them) and free for the producer (checked against `tail`). No other
        // `push` runs (see # Safety), so nobody else writes them. `UnsafeCell<u64>` has the layout of `u64`.
        let record = unsafe { std::slice::from_raw_parts_mut(first.cast::<u64>().cast_mut(), MAX_RECORD) };
        let length = write(record);
        debug_assert!((1..=MAX_RECORD).contains(&length));
        record[0] = length as u64;
        self.head.store(head + length, Ordering::Release);
        true
    }

    /// Lets `read` see the oldest record and frees it. `false` if there is none.
    ///
    /// # Safety
    /// No other `pop` may run at the same time, on any thread.
    pub(in crate::sampler) unsafe fn pop(&self, read: impl FnOnce(&[u64])) -> bool {
        let read = |words: &[u64]| {
            read(words);
            words.len()
        };
        // SAFETY: no other `pop` runs (see # Safety), so `tail` stays where it is until this function moves it.
        let Some(length) = (unsafe { self.peek(read) }) else { return false };
        self.tail.store(self.tail.load(Ordering::Relaxed) + length, Ordering::Release);
        true
    }

    /// What `read` says of the oldest record, which stays; `None` if there is none.
    ///
    /// # Safety
    /// No `pop` may run at the same time, on any thread: it would free the record that is read.
    pub(in crate::sampler) unsafe fn peek<R>(&self, read: impl FnOnce(&[u64]) -> R) -> Option<R> {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail == self.head.load(Ordering::Acquire) {
            return None;
        }
        let first = self.words[tail % CAPACITY..][..MAX_RECORD].as_ptr().cast::<u64>();
        // SAFETY: the record between tail and head is complete and the producer leaves it alone until tail moves.
        let length = (unsafe { *first } as usize).clamp(1, MAX_RECORD);
        // SAFETY: all of its words lie in the box (the slicing checked), and the producer leaves them alone, too.
        Some(read(unsafe { std::slice::from_raw_parts(first, length) }))
    }

    /// How long until it is full of the largest wasm stacks at so many samples a second.
    pub(in crate::sampler) fn until_full_at(rate_hz: f64) -> Duration {
        Duration::from_secs_f64(CAPACITY as f64 / (rate_hz * MAX_FRAMES as f64))
    }

    /// How long until it may be full, if it fills up as it did in the last `interval`, from empty.
    pub(in crate::sampler) fn until_full(read_words: usize, interval: Duration) -> Duration {
        interval.mul_f64(CAPACITY as f64 / read_words.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes a record of `length` words that all hold `value`.
    fn push(ring: &Ring, length: usize, value: u64) -> bool {
        // SAFETY: each test pushes from one thread, so no two pushes overlap.
        unsafe {
            ring.push(|words| {
                words[1..length].fill(value);
                length
            })
        }
    }

    #[test]
    fn records_come_out_whole_and_in_order_across_the_wrap() {
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..5000_u64 {
                    let length = 2 + (value as usize * 37) % (MAX_RECORD - 2);
                    while !push(&ring, length, value) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < 5000 {
                // SAFETY: only this thread pops from the ring, which is local to the test.
                unsafe {
                    ring.pop(|words| {
                        assert_eq!(words.len(), 2 + (expected as usize * 37) % (MAX_RECORD - 2));
                        assert!(words[1..].iter().all(|&word| word == expected));
                        expected += 1;
                    });
                }
            }
        });
    }

    #[test]
    fn a_full_ring_refuses() {
        let ring = Ring::new();
        let mut pushed = 0;
        while push(&ring, MAX_RECORD, 1) {
            pushed += 1;
        }
        assert!((CAPACITY / MAX_RECORD - 1..=CAPACITY / MAX_RECORD).contains(&pushed), "{pushed}");
        // SAFETY: only this thread pops from the ring, which is local to the test.
        assert!(unsafe { ring.pop(|_| ()) });
        assert!(push(&ring, 2, 1));
    }
}
