//! What a symbolized frame says.

/// What kind of code a frame is, for colours and for filtering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// The user's own code, and everything that nothing better is known of.
    #[default]
    User,
    /// The language's standard library and third-party packages.
    Library,
    /// The language's runtime: start-up code, allocator, scheduler, compiler support routines.
    Runtime,
    /// The garbage collector.
    GarbageCollector,
    /// An interpreter's own code.
    Interpreter,
}

/// One frame in the terms of the source language.
///
/// ```
/// use wlprof_plugin::{Category, SourceFrame};
///
/// let frame = SourceFrame {
///     function: "Shop.price".to_owned(),
///     file: Some("/app/shop.py".to_owned()),
///     line: Some(6),
///     ..SourceFrame::default()
/// };
/// assert_eq!(frame.category, Category::User);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    /// The function's name, demangled. Untrusted text: whoever prints it escapes it.
    pub function: String,
    /// The name the linker knows, where it differs.
    pub linkage_name: Option<String>,
    /// Source file as the compiler recorded it.
    pub file: Option<String>,
    /// Line at which the function is declared, from 1.
    pub function_line: Option<u32>,
    /// Line that the frame stands at, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// What kind of code it is.
    pub category: Category,
}

/// Something that a sample belongs to: a goroutine, a state, a label that the program set.
///
/// ```
/// let label = wlprof_plugin::Label { name: "goroutine".to_owned(), value: "17".to_owned() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// What it says: `goroutine`, `state`, or the program's own key. Untrusted text.
    pub name: String,
    /// Which one. Untrusted text.
    pub value: String,
}
