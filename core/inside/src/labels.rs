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
/// thread. A profile of these guests is [`Snapshot::of_label`](crate::Snapshot::of_label). It makes no difference which profiler samples them,
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
/// A sample has the labels that its thread had when its stack was read. A store that waits on a fiber has none, in profiles by the wall clock:
/// no thread runs it. A new thread has no labels until it has opened its first scope.
///
/// # Overhead
/// Some 50 ns a scope, whether a profiler samples or not; more within another scope, whose labels are copied.
///
/// # Security
/// Samples carry labels by what runs, and not by store: open the scope around each call into a store, and not within a host function that
/// another store has called.
#[derive(Clone, Debug)]
pub struct Labels(Arc<Pairs>);

/// Names and values.
type Pairs = Vec<(String, String)>;

/// What a thread's samples are to carry.
type Slot = Arc<Mutex<Option<Arc<Pairs>>>>;

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
        let outer = own.ok().map(|slot| {
            let mut current = lock(&slot);
            let all = match &*current {
                Some(outer) => Arc::new(self.within(outer)),
                None => self.0.clone(),
            };
            let outer = current.replace(all);
            drop(current);
            (slot, outer)
        });
        Scope { outer, _of_this_thread: PhantomData }
    }

    /// Runs `future` with a scope of the labels around each poll: on whatever thread that is, and not while it waits.
    pub async fn run<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _scope = self.scope();
            future.as_mut().poll(context)
        })
        .await
    }

    fn within(&self, outer: &Pairs) -> Pairs {
        let mut all = outer.clone();
        self.0.iter().cloned().for_each(|(name, value)| set(&mut all, name, value));
        all
    }
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
    /// Where the labels are, and those that were there before; `None` if the thread was about to end.
    outer: Option<(Slot, Option<Arc<Pairs>>)>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        let Some((slot, outer)) = self.outer.take() else { return };
        let inner = std::mem::replace(&mut *lock(&slot), outer);
        drop(inner);
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

/// What samples of a thread that stands still are to carry. Nothing where that is being changed: the thread may do so, and would not go on.
pub(crate) fn of_thread(tid: i32) -> Option<Arc<Pairs>> {
    let slot = try_lock(&SLOTS)?.as_ref()?.get(&tid).cloned()?;
    try_lock(&slot)?.clone()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    /// What this thread's samples would carry. Another test may be changing the table of threads.
    fn own() -> Pairs {
        let own = OWN.with(|own| own.get().map(|own| own.slot.clone()));
        own.and_then(|slot| lock(&slot).clone()).map(|pairs| Pairs::clone(&pairs)).unwrap_or_default()
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
