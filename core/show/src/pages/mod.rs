//! Pages for a browser: parts of a recording as HTML, and what stands around each. They load nothing of the net.

mod call_tree;
mod part;
mod parts;
mod shell;
mod sources;

pub use call_tree::SCRIPT as CALL_TREE_SCRIPT;
pub use part::Part;
pub use parts::Parts;
pub use shell::{Page, Shell};
