//! Labels of what runs: names and values that the samples of guests carry while a scope is open on their thread.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use wlprof_attach::thread_id;

/// Names and values of what runs, such as a tenant, a route, or the span of a trace.
///
/// Guests that run within a scope of them have them: what is in [`scope`](Self::scope) on the same thread, or in [`run`](Self::run) on whatever
/// thread. Their profile is [`Recording::of_label`](crate::recording::Recording::of_label). It makes no difference which profiler samples them,
/// or whether it was there when the scope was opened.
///
/// ```
/// let ada = wlprof_inside::Labels::new([("tenant", "ada")]);
/// let scope = ada.scope();
/// // … run a guest of hers …
/// drop(scope);
/// ```
///
/// # Accuracy
/// A sample has the labels that its thread had when its stack was read, or none if a thread was stopped or lost its processor while it opened
/// its first scope, or ended. A store that waits on a fiber has none, in profiles by the wall clock:
/// no thread runs it.
///
/// # Overhead
/// Some 50 ns a scope, whether a profiler samples or not; more within another scope, whose labels are copied.
///
/// # Security
/// Samples carry labels by what runs, and not by store: open the scope around each call into a store, and not within a host function that
/// another store has called. A scope that is open across an `.await` is of whatever else the thread polls meanwhile: use [`run`](Self::run).
#[derive(Clone, Debug)]
pub struct Labels(Arc<Pairs>);

/// How often it is tried to get what a thread holds.
const MAX_TRIES: u32 = 1000;

/// Names and values.
type Pairs = Vec<(String, String)>;

/// The scopes of a thread.
type Slot = Arc<Mutex<OpenScopes>>;

/// The scopes that are open on a thread.
#[derive(Debug, Default)]
struct OpenScopes {
    /// The labels of each, with its number, in the order in which they were opened.
    open: Vec<(u64, Arc<Pairs>)>,
    /// What the next one's number is.
    next: u64,
    /// What samples are to carry: the labels of all.
    all: Option<Arc<Pairs>>,
}

impl OpenScopes {
    fn open(&mut self, labels: &Arc<Pairs>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.push((number, labels.clone()));
        self.add_up();
        number
    }

    /// They need not be closed in any order.
    fn close(&mut self, number: u64) {
        self.open.retain(|(open, _)| *open != number);
        self.add_up();
    }

    fn add_up(&mut self) {
        let mut labels = self.open.iter().map(|(_, labels)| labels);
        let first = labels.next().cloned();
        self.all = first.map(|first| labels.fold(first, |outer, inner| Arc::new(within(inner, &outer))));
    }
}

/// Those of all threads that have had labels, by their ids.
static SLOTS: Mutex<Option<HashMap<i32, Slot>>> = Mutex::new(None);

thread_local! {
    static OWN: OnceCell<OwnSlot> = const { OnceCell::new() };
}

/// The slot of a thread, as long as the thread is there.
struct OwnSlot {
    tid: i32,
    slot: Slot,
}

impl Labels {
    /// Labels with these names and values. Of equal names the last counts.
    pub fn new<N: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut pairs = Pairs::new();
        labels.into_iter().for_each(|(name, value)| set(&mut pairs, name.into(), value.into()));
        Self(Arc::new(pairs))
    }

    /// Has samples of this thread carry the labels until the scope is dropped. Those of an open scope stay, if they have other names.
    #[must_use = "samples carry the labels until the scope is dropped"]
    pub fn scope(&self) -> Scope {
        let own = OWN.try_with(|own| own.get_or_init(OwnSlot::new).slot.clone());
        let slot = own.ok().map(|slot| {
            let number = lock(&slot).open(&self.0);
            (slot, number)
        });
        Scope { slot, _of_this_thread: PhantomData }
    }

    /// Runs `future` with a scope of the labels around each poll: on whatever thread that is, and not while it waits.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let labels = self.clone();
        async move {
            let mut future = pin!(future);
            poll_fn(|context| {
                let _scope = labels.scope();
                future.as_mut().poll(context)
            })
            .await
        }
    }
}

/// Those of `outer`, and those of `inner` in place of equal names.
fn within(inner: &Pairs, outer: &Pairs) -> Pairs {
    let mut all = outer.clone();
    inner.iter().cloned().for_each(|(name, value)| set(&mut all, name, value));
    all
}

fn set(pairs: &mut Pairs, name: String, value: String) {
    match pairs.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = value,
        None => pairs.push((name, value)),
    }
}

/// Labels that samples of this thread carry, until it is dropped: [`Labels::scope`]. It stays on its thread.
///
/// ```
/// let [ada, route] = [("tenant", "ada"), ("route", "/orders")].map(|label| wlprof_inside::Labels::new([label]));
/// let _of_her = ada.scope();
/// // Within it samples have both.
/// let _of_the_request = route.scope();
/// ```
#[derive(Debug)]
pub struct Scope {
    /// Where it is open, and its number there; `None` if the thread was about to end.
    slot: Option<(Slot, u64)>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some((slot, number)) = self.slot.take() {
            lock(&slot).close(number);
        }
    }
}

impl OwnSlot {
    fn new() -> Self {
        let (tid, slot) = (thread_id(), Slot::default());
        lock(&SLOTS).get_or_insert_default().insert(tid, slot.clone());
        Self { tid, slot }
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        if let Some(slots) = &mut *lock(&SLOTS) {
            slots.remove(&self.tid);
        }
    }
}

/// What samples of a thread that stands still are to carry. Nothing where the thread itself is changing that: it would not go on.
pub(crate) fn of_thread(tid: i32) -> Option<Arc<Pairs>> {
    let slot = try_lock(&SLOTS)?.as_ref()?.get(&tid).cloned()?;
    try_lock(&slot)?.all.clone()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..MAX_TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            // A thread that runs leaves it in a moment.
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    /// What this thread's samples would carry. Another test may be changing the table of threads.
    fn own() -> Pairs {
        let own = OWN.with(|own| own.get().map(|own| own.slot.clone()));
        own.and_then(|slot| lock(&slot).all.clone()).map(|pairs| Pairs::clone(&pairs)).unwrap_or_default()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn scopes_add_to_those_around_them() {
        let outer = Labels::new([("tenant", "a"), ("tenant", "ada"), ("route", "/")]);
        assert_eq!(own(), []);
        let scope = outer.scope();
        assert_eq!(own(), pairs(&[("tenant", "ada"), ("route", "/")]));
        {
            let _inner = Labels::new([("span", "7"), ("route", "/orders")]).scope();
            assert_eq!(own(), pairs(&[("tenant", "ada"), ("route", "/orders"), ("span", "7")]));
        }
        assert_eq!(own(), pairs(&[("tenant", "ada"), ("route", "/")]));
        drop(scope);
        assert_eq!(own(), []);
    }

    #[test]
    fn scopes_may_be_closed_in_any_order() {
        let [ada, route] = [("tenant", "ada"), ("route", "/")].map(|label| Labels::new([label]));
        let (first, second) = (ada.scope(), route.scope());
        drop(first);
        assert_eq!(own(), pairs(&[("route", "/")]));
        drop(second);
        assert_eq!(own(), []);
    }

    #[test]
    fn a_future_has_its_labels_while_it_is_polled() {
        let mut polls = 0;
        let twice = poll_fn(|_| {
            assert_eq!(own(), pairs(&[("tenant", "ada")]));
            polls += 1;
            if polls == 2 { Poll::Ready(polls) } else { Poll::Pending }
        });
        let mut labelled = pin!(Labels::new([("tenant", "ada")]).run(twice));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!((labelled.as_mut().poll(&mut context), own()), (Poll::Pending, Pairs::new()));
        assert_eq!((labelled.as_mut().poll(&mut context), own()), (Poll::Ready(2), Pairs::new()));
    }

    #[test]
    fn what_runs_elsewhere_is_known_by_its_thread_as_long_as_that_is_there() {
        let (to_test, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_test) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _scope = Labels::new([("tenant", "ada")]).scope();
            to_test.send(thread_id()).unwrap();
            from_test.recv().unwrap_err();
        });
        let tid = from_thread.recv().unwrap();
        let is_there = || lock(&SLOTS).as_ref().is_some_and(|slots| slots.contains_key(&tid));
        assert!(is_there());
        // Other tests change the table at times.
        let labels = std::iter::repeat_with(|| of_thread(tid)).flatten().next().unwrap();
        assert_eq!(*labels, pairs(&[("tenant", "ada")]));
        drop(to_thread);
        thread.join().unwrap();
        assert!(!is_there());
    }
}
