//! A table of keys and what they stand for, which a program shares with its walkers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::{error::Error, fmt};

/// How often a lock is tried: some microseconds, which is longer than anyone holds it who is not interrupted.
const TRIES: usize = 64;

/// Values that are made room for at once.
const CHUNK: usize = 1024;

/// Numbers values: equal values have the same number, and a number leads to its value for as long as the table is there.
///
/// Nothing waits. [`KeyTable::get`] takes no lock at all, so names can be asked for anywhere. Methods that look for a number try a lock,
/// and give up if another thread holds it.
///
/// ```
/// let names = wlprof_plugin::KeyTable::<Box<str>>::new(1000, 1 << 20);
/// let key = names.keep("main".into(), 4)?;
/// assert_eq!(names.get(key).map(|name| &**name), Some("main"));
/// assert_eq!(names.find("main")?, Some(key));
/// # Ok::<(), wlprof_plugin::NotKept>(())
/// ```
pub struct KeyTable<T> {
    index: Mutex<Index>,
    hasher: RandomState,
    chunks: Box<[Chunk<T>]>,
    most_bytes: usize,
    is_full: AtomicBool,
}

/// Values in the order of their numbers, of which the first so many are there.
type Chunk<T> = OnceLock<Box<[OnceLock<T>]>>;

#[derive(Default)]
struct Index {
    /// The numbers of the values with each hash.
    numbers: HashMap<u64, Vec<u32>>,
    count: usize,
    bytes: usize,
}

/// The reason why a value has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// Another thread holds the table: [`Truncation::Busy`](crate::Truncation::Busy).
    Busy,
    /// There is no room for more.
    Full,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another thread holds the table",
            Self::Full => "there is no room for more",
        })
    }
}

impl Error for NotKept {}

impl<T> fmt::Debug for KeyTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("is_full", &self.is_full).finish_non_exhaustive()
    }
}

impl<T> KeyTable<T> {
    /// Makes a table with room for `most` values, and for `most_bytes` in them.
    pub fn new(most: u32, most_bytes: usize) -> Self {
        let chunks = (0..(most as usize).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Self { index: Mutex::default(), hasher: RandomState::new(), chunks, most_bytes, is_full: false.into() }
    }

    /// Returns the value of `number`. Takes no lock.
    pub fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        self.chunks.get(number / CHUNK)?.get()?.get(number % CHUNK)?.get()
    }

    /// Returns whether there was no room for some value.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// What is in the table cannot be broken by a panic: a value is counted once it is there.
    fn lock(&self) -> Result<MutexGuard<'_, Index>, NotKept> {
        for _ in 0..TRIES {
            match self.index.try_lock() {
                Ok(index) => return Ok(index),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        Err(NotKept::Busy)
    }
}

impl<T: Eq + Hash> KeyTable<T> {
    /// Returns the number of a value that is in the table. Allocates nothing.
    ///
    /// # Errors
    /// [`NotKept::Busy`].
    pub fn find<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Result<Option<u32>, NotKept>
    where
        T: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(value);
        Ok(self.same(&*self.lock()?, hash, value))
    }

    /// Returns the number of `value`, which is added if it is not in the table. It takes `bytes` of the room.
    ///
    /// # Errors
    /// [`NotKept`].
    pub fn keep(&self, value: T, bytes: usize) -> Result<u32, NotKept> {
        let hash = self.hasher.hash_one(&value);
        let mut index = self.lock()?;
        if let Some(number) = self.same(&index, hash, &value) {
            return Ok(number);
        }
        let (number, all) = (index.count, index.bytes.saturating_add(bytes));
        let chunk = self.chunks.get(number / CHUNK).filter(|_| all <= self.most_bytes);
        let Some(chunk) = chunk else {
            self.is_full.store(true, Ordering::Relaxed);
            return Err(NotKept::Full);
        };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        // Whoever has the lock is alone with what has no number yet.
        if let Some(place) = chunk.get(number % CHUNK) {
            place.get_or_init(|| value);
        }
        index.numbers.entry(hash).or_default().push(number as u32);
        (index.count, index.bytes) = (number + 1, all);
        Ok(number as u32)
    }

    fn same<Q: Eq + ?Sized>(&self, index: &Index, hash: u64, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        let same = index.numbers.get(&hash)?;
        same.iter().copied().find(|&number| self.get(number).is_some_and(|known| known.borrow() == value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_number_and_lead_back() {
        let table: KeyTable<Box<str>> = KeyTable::new(2 * CHUNK as u32, 1 << 20);
        let numbers: Vec<u32> = (0..1500).map(|at| table.keep(at.to_string().into(), 4).unwrap()).collect();
        assert_eq!(numbers, (0..1500).collect::<Vec<u32>>());
        assert_eq!((table.keep("7".into(), 4), table.find("8"), table.find("x")), (Ok(7), Ok(Some(8)), Ok(None)));
        assert_eq!(
            (table.get(1499).map(|text| &**text), table.get(1500), table.get(u32::MAX)),
            (Some("1499"), None, None)
        );
    }

    #[test]
    fn what_is_full_keeps_what_it_has() {
        let table = KeyTable::new(CHUNK as u32, 10);
        assert_eq!((table.keep(5, 8), table.is_full()), (Ok(0), false));
        assert_eq!((table.keep(6, 3), table.keep(5, 8), table.is_full()), (Err(NotKept::Full), Ok(0), true));
        let table = KeyTable::new(0, 10);
        assert_eq!(table.keep(5, 8), Err(NotKept::Full));
    }

    #[test]
    fn a_table_that_is_held_is_read_and_not_waited_for() {
        let table = KeyTable::new(9, 10);
        assert_eq!(table.keep(5, 1), Ok(0));
        let held = table.lock().unwrap();
        assert_eq!(
            (table.keep(5, 1), table.find(&5), table.get(0)),
            (Err(NotKept::Busy), Err(NotKept::Busy), Some(&5))
        );
        drop(held);
        assert_eq!(table.find(&5), Ok(Some(0)));
    }

    #[test]
    fn many_threads_agree() {
        let table = KeyTable::new(1 << 14, 1 << 20);
        let kept = |from: u32| {
            let keep = |at| loop {
                match table.keep((from + at) % 5000, 1) {
                    Ok(number) => break number,
                    Err(error) => assert_eq!(error, NotKept::Busy),
                }
            };
            (0..5000).map(|at| (keep(at), (from + at) % 5000)).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let threads = [0, 1000, 2500].map(|from| scope.spawn(move || kept(from)));
            for thread in threads {
                assert!(thread.join().unwrap().iter().all(|(number, value)| table.get(*number) == Some(value)));
            }
        });
        assert_eq!((table.get(4999).is_some(), table.get(5000)), (true, None));
    }
}
