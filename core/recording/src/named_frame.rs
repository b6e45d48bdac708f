//! Source frames as the journal has them.

use super::Category;
use serde::{Deserialize, Serialize};
use wlprof_plugin::SourceFrame;

/// Mirrors [`SourceFrame`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamedFrame {
    function: String,
    linkage_name: Option<String>,
    file: Option<String>,
    function_line: Option<u32>,
    line: Option<u32>,
    column: Option<u32>,
    category: Category,
}

impl From<SourceFrame> for NamedFrame {
    fn from(frame: SourceFrame) -> Self {
        let SourceFrame { function, linkage_name, file, function_line, line, column, category } = frame;
        Self { function, linkage_name, file, function_line, line, column, category: category.into() }
    }
}

impl From<NamedFrame> for SourceFrame {
    fn from(frame: NamedFrame) -> Self {
        let NamedFrame { function, linkage_name, file, function_line, line, column, category } = frame;
        let category = match category {
            // No language's frame is the host's.
            Category::User | Category::Host => wlprof_plugin::Category::User,
            Category::Library => wlprof_plugin::Category::Library,
            Category::Runtime => wlprof_plugin::Category::Runtime,
            Category::GarbageCollector => wlprof_plugin::Category::GarbageCollector,
            Category::Interpreter => wlprof_plugin::Category::Interpreter,
        };
        Self { function, linkage_name, file, function_line, line, column, category }
    }
}
