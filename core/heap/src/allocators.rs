//! The functions by which a guest's allocator is called.

use std::fmt;
pub use wlprof_plugin::{Allocator, AllocatorCall as Call};

/// The call of that name.
pub(super) fn call_named(name: &str) -> Option<Call> {
    Call::ALL.into_iter().find(|call| call.name() == name)
}

/// The names of all calls, for the user.
pub(super) fn names_of_calls() -> String {
    Call::ALL.map(Call::name).join(", ")
}

/// By what number whoever is told of a call knows it.
pub(super) fn number_of(call: Call) -> i32 {
    call as i32
}

/// Returns the call of that number. `None` if there is none.
pub fn call_of_number(number: i32) -> Option<Call> {
    Call::ALL.into_iter().find(|call| number_of(*call) == number)
}

/// Functions that an allocator has at most. Those of C++'s libraries have some thirty.
pub(super) const MAX_ALLOCATORS: usize = 1000;

/// Places where functions return that are changed at most. C's `realloc` has some ten.
pub(super) const MAX_EXITS: usize = 10_000;

/// The reason why a module is not rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRewritten {
    /// One of the functions is imported: another module allocates, not this one.
    Imported(u32),
    /// One of the functions has another signature than its call.
    Signature(u32, Call),
    /// There is no such function.
    NoFunction(u32),
    /// One of the functions is listed with two calls.
    Twice(u32),
    /// No function has this name.
    NotNamed(String),
    /// No function that allocates is known.
    NoAllocator,
    /// The module's memory has 64-bit addresses, or the module has no memory of its own for all its data.
    Memory(&'static str),
    /// The function leaves by a tail call that cannot become a call: it would then catch more than it does, or recurse without end.
    TailCall(u32),
    /// The function returns in more places than are changed.
    Exits(u32),
    /// There are too many functions that allocate: this many.
    TooMany(usize),
    /// The module exports something by a name that is reserved for wlprof.
    Name(String),
    /// The module cannot be read.
    Malformed(String),
    /// No function that allocates is left: each was left out for its reason.
    EachLeftOut(Vec<NotRewritten>),
}

impl NotRewritten {
    /// The function without which it might be rewritten.
    pub(super) fn function(&self) -> Option<u32> {
        match self {
            Self::Signature(function, _) | Self::TailCall(function) | Self::Exits(function) => Some(*function),
            _ => None,
        }
    }
}

impl fmt::Display for NotRewritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Imported(function) => {
                write!(f, "function {function} is imported: its memory is given out by whoever provides it")
            }
            Self::Signature(function, call) => {
                write!(f, "function {function} is not called as {} is: it has another signature", call.name())
            }
            Self::NoFunction(function) => write!(f, "there is no function {function}"),
            Self::Twice(function) => write!(f, "function {function} cannot be called in two ways"),
            Self::NotNamed(name) => write!(f, "there is no function {name}, nor is that an index"),
            Self::NoAllocator => {
                f.write_str("it has no functions by the names of C's allocator (supported: guests that are linked with C's library and have function names; others by --alloc-functions)")
            }
            Self::Memory(what) => write!(f, "{what} (supported: one memory with 32-bit addresses)"),
            Self::TailCall(function) => write!(
                f,
                "function {function} allocates by others, and leaves by a tail call where nothing can be done behind it"
            ),
            Self::Exits(function) => write!(
                f,
                "function {function} returns in more places than are changed (supported: {MAX_EXITS} in all functions together)"
            ),
            Self::TooMany(count) => write!(f, "{count} functions are said to be its allocator (supported: {MAX_ALLOCATORS})"),
            Self::Name(name) => write!(f, "it exports {name:?}, which is a name of wlprof's own"),
            Self::Malformed(error) => write!(f, "it cannot be read: {error}"),
            Self::EachLeftOut(reasons) => {
                let reasons: Vec<_> = reasons.iter().map(Self::to_string).collect();
                f.write_str(&reasons.join("; "))
            }
        }
    }
}

impl std::error::Error for NotRewritten {}
