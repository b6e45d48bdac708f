//! What of the process a plugin must leave as it found it, because the guest would see the difference: how the processor
//! rounds, which signals the thread blocks, and who handles them.

use super::processor::{FloatingPoint, ROUNDING, empty_floating_point};
use super::signals::action_of;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// What is put back after a call. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum SavedContext {
    /// Control words of the processor's floating-point units: some nanoseconds.
    FloatingPoint,
    /// The thread's signal mask: two system calls.
    Mask,
    /// What the process does at each signal: as many system calls as there are signals.
    Handlers,
}

/// What a call changed of it, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Changes(pub(in super::super) u8);

impl Changes {
    const FLOATING_POINT: Self = Self(1);
    const MASK: Self = Self(2);
    const HANDLERS: Self = Self(4);

    fn only_if(self, is_so: bool) -> Self {
        if is_so { self } else { Self::default() }
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(in super::super) fn any(self) -> bool {
        self.0 != 0
    }

    /// Each in words.
    pub(in super::super) fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            (Self::FLOATING_POINT, ROUNDING),
            (Self::MASK, "which signals the thread blocks"),
            (Self::HANDLERS, "who handles a signal"),
        ];
        names.into_iter().filter(move |(change, _)| self.0 & change.0 != 0).map(|(_, name)| name)
    }
}

/// Runs `run`, which comes back even if a plugin does not, and puts back what it changed.
#[inline]
pub(in super::super) fn keeping<T>(kept: SavedContext, run: impl FnOnce() -> T) -> (T, Changes) {
    match kept {
        SavedContext::FloatingPoint => keeping_floating_point(run),
        SavedContext::Mask => keeping_mask(run),
        SavedContext::Handlers => keeping_handlers(run),
    }
}

#[inline]
fn keeping_floating_point<T>(run: impl FnOnce() -> T) -> (T, Changes) {
    let before = FloatingPoint::now();
    let result = run();
    (result, Changes::FLOATING_POINT.only_if(before.put_back()))
}

#[inline(never)]
fn keeping_mask<T>(run: impl FnOnce() -> T) -> (T, Changes) {
    let before = set_mask(None);
    let (result, changes) = keeping_floating_point(run);
    empty_floating_point();
    let after = set_mask(Some(&before));
    (result, changes.and(Changes::MASK.only_if(bits(&before) != bits(&after))))
}

#[inline(never)]
fn keeping_handlers<T>(run: impl FnOnce() -> T) -> (T, Changes) {
    let before = Handlers::now();
    let (result, changes) = keeping_mask(run);
    (result, changes.and(Changes::HANDLERS.only_if(before.put_back(|_| true))))
}

/// What the process does at each signal.
pub(in super::super) struct Handlers([Option<libc::sigaction>; SIGNALS.len()]);

impl Handlers {
    pub(in super::super) fn now() -> Self {
        Self(SIGNALS.map(action_of))
    }

    /// Puts back those that were changed meanwhile, as far as there was a function to handle the signal. Who came later, to
    /// one that nobody handled, stays.
    pub(in super::super) fn put_back_functions(&self) {
        self.put_back(|before| ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction));
    }

    /// Whether any was changed of those that are `meant`.
    fn put_back(&self, meant: impl Fn(&libc::sigaction) -> bool) -> bool {
        let mut is_changed = false;
        for (signal, before) in SIGNALS.into_iter().zip(&self.0) {
            let (Some(before), Some(after)) = (before, action_of(signal)) else { continue };
            let parts = |action: &libc::sigaction| (action.sa_sigaction, action.sa_flags, bits(&action.sa_mask));
            if meant(before) && parts(before) != parts(&after) {
                is_changed = true;
                // SAFETY: `before` is a whole action, which was installed for this signal.
                unsafe { libc::sigaction(signal, before, null_mut()) };
            }
        }
        is_changed
    }
}

/// All signals.
const SIGNALS: [i32; 64] = {
    let mut signals = [0; 64];
    let mut signal = 1;
    while signal <= 64 {
        signals[signal - 1] = signal as i32;
        signal += 1;
    }
    signals
};

/// The signals in a set: bit n-1 is signal n.
fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: a `sigset_t` is larger than 8 bytes and aligned for them, and begins with the kernel's set.
    unsafe { (&raw const *set).cast::<u64>().read() }
}

/// Sets this thread's mask, if there is one to set, and gives the one before.
fn set_mask(mask: Option<&libc::sigset_t>) -> libc::sigset_t {
    let mut before = MaybeUninit::zeroed();
    let mask = mask.map_or(null(), std::ptr::from_ref);
    // SAFETY: `mask` is a whole set or null, and there is room for another one in `before`. An all-zero set is an empty one.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}
