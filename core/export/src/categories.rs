//! How formats that have colours show kinds of code, so that a function has the same colour in all of them.

use wlprof_recording::Category;

/// A kind of code as readers see it.
pub(super) struct CategoryName {
    pub(super) category: Category,
    pub(super) name: &'static str,
    /// In the Firefox Profiler's words.
    pub(super) color: &'static str,
    /// That colour, light enough for black text: red, green, blue.
    pub(super) rgb: [u8; 3],
}

const fn shown(category: Category, name: &'static str, color: &'static str, rgb: [u8; 3]) -> CategoryName {
    CategoryName { category, name, color, rgb }
}

/// All kinds. At least one must be `grey`, or the call tree of the Firefox Profiler crashes.
pub(super) const CATEGORIES: [CategoryName; 6] = [
    shown(Category::User, "User", "blue", [125, 182, 245]),
    shown(Category::Library, "Library", "green", [148, 209, 126]),
    shown(Category::Runtime, "Runtime", "grey", [196, 196, 200]),
    shown(Category::GarbageCollector, "GC", "orange", [246, 168, 86]),
    shown(Category::Interpreter, "Interpreter", "purple", [202, 164, 236]),
    shown(Category::Host, "Host", "yellow", [243, 222, 108]),
];

/// The place of a kind in [`CATEGORIES`].
pub(super) fn category_index(category: Category) -> usize {
    CATEGORIES.iter().position(|shown| shown.category == category).unwrap_or(0)
}

/// How a kind is shown.
pub(super) fn shown_as(category: Category) -> &'static CategoryName {
    &CATEGORIES[category_index(category)]
}
