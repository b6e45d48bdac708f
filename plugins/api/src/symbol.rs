//! Symbolized frames, and labels.

/// The kind of code of a frame, for colours and filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// The user's own code, and code that is not known to be anything else.
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

/// A frame in terms of the source language.
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
    /// Name of the function, demangled. Untrusted text: escape it before you print it.
    pub function: String,
    /// Name that the linker knows, where it differs.
    pub linkage_name: Option<String>,
    /// Source file as the compiler recorded it.
    pub file: Option<String>,
    /// Line at which the function is declared, from 1.
    pub function_line: Option<u32>,
    /// Line that the frame stands at, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Kind of code.
    pub category: Category,
}

/// Something that a sample belongs to: a goroutine, a state, or a label that the program set.
///
/// ```
/// let label = wlprof_plugin::Label { name: "goroutine".to_owned(), value: "17".to_owned() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// Name of the label: `goroutine`, `state`, or the program's own key. Untrusted text.
    pub name: String,
    /// Value of the label. Untrusted text.
    pub value: String,
}
