//! Names that do not come from DWARF: the name section's, exports' and imports', demangled.

use crate::category::categorize;
use std::fmt::{self, Write as _};
use wlprof_plugin::{ModuleView, SourceFrame};

/// The longest name kept. C++ templates reach a few thousand characters; more is a mistake or an attack.
const LONGEST: usize = 16 << 10;

/// The function names of a module, copied out of it.
#[derive(Debug)]
pub(crate) struct Names {
    imports: Vec<String>,
    own: Vec<Option<Box<str>>>,
}

impl Names {
    pub(crate) fn new(view: &dyn ModuleView, bodies: usize) -> Self {
        let imports: Vec<_> = view
            .function_imports()
            .iter()
            .map(|import| shorten(format!("{}.{}", import.module, import.name)))
            .collect();
        let first = u32::try_from(imports.len()).unwrap_or(u32::MAX);
        let own = (first..u32::MAX).take(bodies).map(|index| view.function_name(index).map(Box::from)).collect();
        Self { imports, own }
    }

    /// The name that the linker gave a function of the module's own.
    pub(crate) fn linkage(&self, function: u32) -> Option<&str> {
        self.own.get((function as usize).checked_sub(self.imports.len())?)?.as_deref()
    }

    /// The frame of a function that nothing but its name is known of.
    pub(crate) fn frame(&self, function: u32) -> SourceFrame {
        let mut frame = match self.imports.get(function as usize) {
            Some(import) => SourceFrame { function: import.clone(), ..SourceFrame::default() },
            None => match self.linkage(function).filter(|name| !name.is_empty()) {
                Some(linkage) => named(linkage),
                None => SourceFrame { function: format!("wasm-function[{function}]"), ..SourceFrame::default() },
            },
        };
        frame.category = categorize(&frame.function, None);
        frame
    }
}

/// A frame with `linkage` demangled, and kept where that changed it.
pub(crate) fn named(linkage: &str) -> SourceFrame {
    match demangle(linkage) {
        Some(function) => {
            SourceFrame { function, linkage_name: Some(shorten(linkage.to_owned())), ..SourceFrame::default() }
        }
        None => SourceFrame { function: shorten(linkage.to_owned()), ..SourceFrame::default() },
    }
}

/// Whether a linker's name says which namespace, module or type a function belongs to.
pub(crate) fn is_qualified(linkage: &str) -> bool {
    linkage.contains("::") || demangle(linkage).is_some()
}

/// `name` in the terms of its language (Rust, without the hash, or C++), if it is mangled.
pub(crate) fn demangle(name: &str) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    demangle_rust(name).or_else(|| demangle_cpp(name))
}

// Mangled names refer back to their own parts: a hundred bytes can stand for more text than there is memory.

fn demangle_rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    // `#` leaves out the hash.
    write!(out, "{symbol:#}").ok()?;
    Some(out.0)
}

/// Only what begins as names of functions do: without that `f` is the type `float` to a demangler, and `i` is `int`.
fn demangle_cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(out.0)
}

struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Cuts a name at [`LONGEST`].
pub(crate) fn shorten(mut name: String) -> String {
    if name.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangles_what_it_knows_and_leaves_the_rest() {
        let cases = [
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", Some("core::fmt::Formatter::pad")),
            ("_RNvNtCs1234_7mycrate3foo3bar", Some("mycrate::foo::bar")),
            ("_ZN6shapes6Square4areaEv", Some("shapes::Square::area()")),
            (
                "_ZNSt3__16vectorIiNS_9allocatorIiEEE9push_backEOi",
                Some("std::__1::vector<int, std::__1::allocator<int> >::push_back(int&&)"),
            ),
            ("main", None),
            ("f", None),
            ("i", None),
            ("__wasm_call_ctors", None),
            ("_Z", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(demangle(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_name_that_explodes_stays_mangled() {
        // Each parameter is a template of the one before, twice: sixty doublings. A template and its instance take a
        // number each, so the one before has every other.
        let mut name = String::from("_Z1f1aIiiE");
        for level in 0..60 {
            let id = format!("S{}_", base36(2 * level));
            name.push_str(&format!("1aI{id}{id}E"));
        }
        assert_eq!(demangle(&name), None);
        assert_eq!(named(&name).function, name);
    }

    fn base36(number: u32) -> String {
        let digit = |digit: u32| char::from_digit(digit, 36).unwrap().to_ascii_uppercase();
        if number < 36 { digit(number).to_string() } else { format!("{}{}", digit(number / 36), digit(number % 36)) }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let cut = shorten("é".repeat(LONGEST));
        assert!(cut.len() <= LONGEST + '…'.len_utf8() && cut.ends_with("é…"));
    }
}
