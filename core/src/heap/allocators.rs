//! The functions by which a guest's allocator is called.

use std::fmt;

/// How a function of the C library takes and gives memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `malloc(size)`
    Malloc,
    /// `calloc(count, size)`
    Calloc,
    /// `realloc(block, size)`
    Realloc,
    /// `aligned_alloc(alignment, size)` and `memalign`, which is called alike
    AlignedAlloc,
    /// `posix_memalign(result, alignment, size)`
    PosixMemalign,
    /// `free(block)`
    Free,
}

impl Call {
    const ALL: [Self; 6] =
        [Self::Malloc, Self::Calloc, Self::Realloc, Self::AlignedAlloc, Self::PosixMemalign, Self::Free];

    /// What C's library calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::AlignedAlloc => "aligned_alloc",
            Self::PosixMemalign => "posix_memalign",
            Self::Free => "free",
        }
    }

    /// The call of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.name() == name)
    }

    /// All names, for the user.
    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// By what number whoever is told of a call knows it.
    pub(super) fn number(self) -> i32 {
        self as i32
    }

    /// The call of that number.
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.number() == number)
    }

    /// Number of parameters; all are addresses or sizes, and so is what is returned, if anything is.
    pub(super) fn parameters(self) -> u32 {
        match self {
            Self::Malloc | Self::Free => 1,
            Self::Calloc | Self::Realloc | Self::AlignedAlloc => 2,
            Self::PosixMemalign => 3,
        }
    }

    pub(super) fn returns(self) -> bool {
        self != Self::Free
    }
}

/// A function of a module that is called for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorFunction {
    /// Its index in the module.
    pub function: u32,
    /// How it is called.
    pub call: Call,
}

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
    /// It exports something by a name that is wlprof's.
    Name(String),
    /// It cannot be read.
    Malformed(String),
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
            Self::Name(name) => write!(f, "it exports {name:?}, which is a name of wlprof's own"),
            Self::Malformed(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

impl std::error::Error for NotRewritten {}
