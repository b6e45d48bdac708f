//! Names that do not come from DWARF: the name section's, exports' and imports', demangled.

use crate::{
    category::categorize,
    demangle::{Demangler, LONGEST},
};
use std::sync::Arc;
use wlprof_plugin::{ModuleView, SourceFrame};

/// The function names of a module, copied out of it.
#[derive(Debug)]
pub(crate) struct Names {
    imports: Vec<String>,
    own: Vec<Option<Arc<str>>>,
    demangler: Demangler,
}

impl Names {
    /// `debug_size` is that of the sections that have names as well.
    pub(crate) fn new(view: &dyn ModuleView, bodies: usize, debug_size: usize) -> Self {
        let imports: Vec<_> = view
            .function_imports()
            .iter()
            .map(|import| shorten(&format!("{}.{}", import.module, import.name)))
            .collect();
        let first = u32::try_from(imports.len()).unwrap_or(u32::MAX);
        let name = |index| view.function_name(index).map(Arc::from);
        let own: Vec<Option<Arc<str>>> = (first..u32::MAX).take(bodies).map(name).collect();
        let size = own.iter().flatten().map(|name| name.len()).sum::<usize>();
        Self { imports, own, demangler: Demangler::new(size.saturating_add(debug_size)) }
    }

    /// The name that the linker gave a function of the module's own.
    pub(crate) fn linkage(&self, function: u32) -> Option<Arc<str>> {
        self.own.get((function as usize).checked_sub(self.imports.len())?)?.clone()
    }

    /// The frame of a function that nothing but its name is known of.
    pub(crate) fn frame(&mut self, function: u32) -> SourceFrame {
        let mut frame = match self.imports.get(function as usize) {
            Some(import) => SourceFrame { function: import.clone(), ..SourceFrame::default() },
            None => match self.linkage(function).filter(|name| !name.is_empty()) {
                Some(linkage) => self.named(&linkage),
                None => SourceFrame { function: format!("wasm-function[{function}]"), ..SourceFrame::default() },
            },
        };
        frame.category = categorize(&frame.function, None);
        frame
    }

    /// A frame with `linkage` demangled, and kept where that changed it.
    pub(crate) fn named(&mut self, linkage: &str) -> SourceFrame {
        let kept = shorten(linkage);
        match self.demangler.demangle(linkage) {
            Some(function) => {
                SourceFrame { function: function.to_string(), linkage_name: Some(kept), ..SourceFrame::default() }
            }
            None => SourceFrame { function: kept, ..SourceFrame::default() },
        }
    }

    /// Whether a linker's name says which namespace, module or type a function belongs to.
    pub(crate) fn is_qualified(&mut self, linkage: &str) -> bool {
        linkage.contains("::") || self.demangler.demangle(linkage).is_some()
    }

    /// Whether the linker's name for a function is `name` or what it demangles to, spaced as the linker likes.
    pub(crate) fn is_called(&mut self, linker_name: &str, name: &str) -> bool {
        let letters = |text: &str| text.chars().filter(|letter| *letter != ' ').collect::<String>();
        name == linker_name || self.demangler.demangle(name).is_some_and(|name| letters(&name) == letters(linker_name))
    }

    /// Whether names were left mangled for want of budget.
    pub(crate) fn gave_up(&self) -> bool {
        self.demangler.gave_up()
    }
}

/// A copy of `name`, cut at [`LONGEST`].
pub(crate) fn shorten(name: &str) -> String {
    let end = name.floor_char_boundary(LONGEST);
    if end < name.len() { format!("{}…", &name[..end]) } else { name.to_owned() }
}

/// What the guest means to be text, cut at [`LONGEST`] before it is copied: nothing says how long it is.
pub(crate) fn text(bytes: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST + 1)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        let cut = shorten(&"é".repeat(LONGEST));
        assert!(cut.len() <= LONGEST + '…'.len_utf8() && cut.ends_with("é…"));
    }
}
