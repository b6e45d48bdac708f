//! Whether a module is a CPython, and which.

use crate::{
    debug_info::Variables,
    debug_offsets,
    functions::is_eval,
    module::{EVAL, Module},
};
use memchr::memmem;
use std::fmt;
use wlprof_plugin::ModuleView;

/// In `sysmodule.c`: the tag of cached bytecode, `cpython-311`, which every build has, stripped or not.
const TAG: &[u8] = b"cpython-3";
/// In `pylifecycle.c`. Programs that only know of tags (package managers) do not have it.
const FATAL: &[u8] = b"Fatal Python error: ";

/// A release of CPython 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) minor: u8,
    pub(crate) micro: Option<u8>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPython 3.{}", self.minor)?;
        self.micro.map_or(Ok(()), |micro| write!(f, ".{micro}"))
    }
}

impl Version {
    /// What `PY_VERSION_HEX` says, if it is one of CPython 3.
    pub(crate) fn from_hex(hex: u32) -> Option<Self> {
        let [major, minor, micro, _] = hex.to_be_bytes();
        (major == 3 && minor < 100).then_some(Self { minor, micro: Some(micro) })
    }
}

/// What detection tells of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// `None`: a CPython that does not say which.
    pub(crate) version: Option<Version>,
    pub(crate) free_threaded: bool,
}

/// The module, if the interpreter is in it, and what tells which that is.
pub(crate) fn read_interpreter(view: &dyn ModuleView) -> Option<(Module<'_>, Evidence)> {
    let own = eval_size(view);
    if own.is_none() {
        let is_elsewhere = view.siblings().into_iter().any(|sibling| eval_size(sibling).is_some());
        let module = if is_elsewhere { return None } else { Module::read(view.bytes()) };
        let evidence = detect(&module, false)?;
        return Some((module, evidence));
    }
    // What forwards calls to libraries has functions of the names of theirs.
    if view.siblings().into_iter().any(|sibling| eval_size(sibling) > own) {
        return None;
    }
    let module = Module::read_with_siblings(view);
    let evidence = detect(&module, true)?;
    Some((module, evidence))
}

/// The size of the interpreter's loop, if the module has it by name.
fn eval_size(view: &dyn ModuleView) -> Option<usize> {
    // That is found at once, and is what it mostly is called.
    if let Some(body) = view.function_named(EVAL).and_then(|eval| view.function_body(eval)) {
        return Some(body.len());
    }
    let bodies = function_names(view).filter(|(_, name)| is_eval(name));
    bodies.filter_map(|(index, _)| view.function_body(index)).map(|body| body.len()).max()
}

/// Looks for the interpreter in `module`.
fn detect(module: &Module<'_>, has_eval: bool) -> Option<Evidence> {
    let has_text = || module.data.iter().any(|data| memmem::find(data, FATAL).is_some());
    let tag = module.data.iter().find_map(|data| tag(data));
    if !(has_eval || tag.is_some() && has_text()) {
        return None;
    }
    let described = module.data.iter().find_map(|data| {
        let at = memmem::find(data, debug_offsets::COOKIE)?;
        debug_offsets::head(&data[at..])
    });
    let version = described
        .and_then(|description| Version::from_hex(description.version))
        .or_else(|| {
            let is_there = module.memory_base.is_none();
            Version::from_hex(module.word(module.address("Py_Version").filter(|_| is_there)?)?)
        })
        .or_else(|| {
            let minor = tag?;
            let micro = module.data.iter().find_map(|data| micro(data, minor));
            Some(Version { minor, micro })
        });
    Some(Evidence { version, free_threaded: described.is_some_and(|description| description.free_threaded) })
}

/// The version, where detection could not tell it but the debug information can.
pub(crate) fn from_debug_info(module: &Module<'_>, variables: &Variables) -> Option<Version> {
    Version::from_hex(module.word(variables.version.filter(|_| module.memory_base.is_none())?)?)
}

/// All functions that have a name, by index.
pub(crate) fn function_names(view: &dyn ModuleView) -> impl Iterator<Item = (u32, &str)> {
    let imports = view.function_imports().len() as u32;
    let defined = (imports..).take_while(|&index| view.function_body(index).is_some());
    (0..imports).chain(defined).filter_map(|index| Some((index, view.function_name(index)?)))
}

/// The minor release in a `cpython-3NN` that stands alone.
fn tag(data: &[u8]) -> Option<u8> {
    memmem::find_iter(data, TAG).find_map(|at| {
        let rest = &data[at + TAG.len()..];
        let end = rest.iter().take(3).position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    })
}

/// The last number in a `3.NN.MM`, which `sys.version` begins with.
fn micro(data: &[u8], minor: u8) -> Option<u8> {
    let start = format!("3.{minor}.");
    memmem::find_iter(data, start.as_bytes()).find_map(|at| {
        let before = at.checked_sub(1).map_or(0, |before| data[before]);
        let rest = &data[at + start.len()..];
        let end = rest.iter().take(3).position(|byte| !byte.is_ascii_digit())?;
        let ends_well = matches!(rest[end], 0 | b'+' | b'a' | b'b' | b'r');
        (ends_well && !before.is_ascii_alphanumeric() && before != b'.').then_some(())?;
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_stand_alone() {
        assert_eq!(tag(b"\0cpython-311\0"), Some(11));
        assert_eq!(tag(b"\0cpython-39\0"), Some(9));
        assert_eq!(tag(b"cpython-311-wasm32-wasi\0cpython-313\0"), Some(13));
        assert_eq!(tag(b"cpython-3"), None);
        assert_eq!(tag(b"cpython-31100\0"), None);
    }

    #[test]
    fn micro_releases_are_not_parts_of_other_numbers() {
        assert_eq!(micro(b"x\x0013.11.5\0\x003.11.2\0", 11), Some(2));
        assert_eq!(micro(b"3.11.14+\0", 11), Some(14));
        assert_eq!(micro(b"3.13.0rc1\0", 13), Some(0));
        assert_eq!(micro(b"3.11.2", 11), None);
        assert_eq!(micro(b"3.11.2.1\0", 11), None);
    }
}
