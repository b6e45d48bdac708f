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

/// The call of that number.
pub fn call_of_number(number: i32) -> Option<Call> {
    Call::ALL.into_iter().find(|call| number_of(*call) == number)
}

/// Functions that an allocator has at most. Those of C++'s libraries have some thirty.
pub(super) const MAX_ALLOCATORS: usize = 1000;

/// Places where functions return that are changed at most. C's `realloc` has some ten.
pub(super) const MAX_EXITS: usize = 10_000;

/// Why a module is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRewritten {
    /// One of the functions is imported: whoever has it allocates, not this module.
    Imported(u32),
    /// One of the functions is not called as it should be: its signature is another one.
    Signature(u32, Call),
    /// There is no such function.
    NoFunction(u32),
    /// One of the functions is said to be called in two ways.
    Twice(u32),
    /// No function is called so.
    NotNamed(String),
    /// Nothing that allocates is known.
    NoAllocator,
    /// The module's memory has 64-bit addresses, or it has none of its own that all of it is in.
    Memory(&'static str),
    /// The function leaves by a tail call that cannot be a call: it would catch what it does not catch, or come to itself without end.
    TailCall(u32),
    /// The function has more places where it returns than are changed.
    Exits(u32),
    /// So many functions are said to allocate.
    TooMany(usize),
    /// It exports something by a name that is wlprof's.
    Name(String),
    /// It cannot be read.
    Malformed(String),
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
        }
    }
}

impl std::error::Error for NotRewritten {}
