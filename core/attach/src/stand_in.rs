//! Modules in place of those whose files nobody has: as many functions, with the names that the compiled image has for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use wasm_encoder::{
    CodeSection, CustomSection, EntityType, Function, FunctionSection, ImportSection, Module, NameMap, NameSection,
    TypeSection,
};
use wlprof_module::{ModuleImage, STAND_IN_SECTION};
use wlprof_plugin::ModuleView;
use wlprof_walk::{CodeName, CompiledImage};

/// The most functions that a module may have: Wasmtime's own limit.
const MAX_FUNCTIONS: u32 = 1_000_000;

/// The most modules that a component may have.
const MAX_MODULES: u32 = 1_000;

/// Functions of all modules that are made for a process. Symbols of a few kilobytes can ask for a thousand times as many.
pub(crate) const MAX_ALL_FUNCTIONS: u32 = 4_000_000;

/// What Wasmtime cuts the names of its symbols to.
const SYMBOL_LENGTH: usize = 96;

/// What an image says of one module.
#[derive(Debug, Default)]
struct Functions {
    /// The index of the first that has code: imports are before it.
    first: u32,
    end: u32,
    names: BTreeMap<u32, String>,
}

/// Makes modules for the functions of `image`, by Wasmtime's numbers. `file` is the name of its file, if it is mapped from one. The functions
/// are taken from `room`; `None` if it has too many.
pub(crate) fn modules(image: &CompiledImage<'_>, file: &str, room: &mut u32) -> Option<Vec<Arc<ModuleImage>>> {
    let mut modules = functions(image);
    let all = modules.values().fold(0_u32, |all, functions| all.saturating_add(functions.end));
    *room = room.checked_sub(all)?;
    for (module, function, name) in image.function_names() {
        if let Some(functions) = modules.get_mut(&module) {
            functions.names.insert(function, name.to_owned());
        }
    }
    if let Some(all) = image.section(".name.wasm").map(String::from_utf8_lossy) {
        let last = modules.last_key_value().map(|(last, _)| *last);
        modules
            .iter_mut()
            .fold(0, |from, (number, functions)| complete(&mut functions.names, &all, from, Some(*number) == last));
    }
    let module = |(number, name): (u32, String)| {
        let bytes = encode(modules.get(&number).unwrap_or(&Functions::default()));
        Arc::new(ModuleImage::parse(bytes, &name).expect("it has just been encoded"))
    };
    Some((0..).zip(names_of(&modules, file)).map(module).collect())
}

/// Returns how many functions were taken from the room for a module that [`modules`] has made.
pub(crate) fn functions_in(module: &ModuleImage) -> u32 {
    let first = module.first_body();
    let bodies = (first..).take_while(|function| module.function_body(*function).is_some());
    first + bodies.count() as u32
}

/// Returns the names of the modules that [`modules`] makes.
pub(crate) fn names(image: &CompiledImage<'_>, file: &str) -> Vec<String> {
    names_of(&functions(image), file)
}

fn names_of(modules: &BTreeMap<u32, Functions>, file: &str) -> Vec<String> {
    let name = if file.is_empty() { "wasm" } else { file };
    let count = modules.last_key_value().map_or(0, |(last, _)| last + 1);
    let is_alone = modules.len() == 1;
    (0..count).map(|number| if is_alone { name.to_owned() } else { format!("{name}[{number}]") }).collect()
}

/// The functions of each module, without their names.
fn functions(image: &CompiledImage<'_>) -> BTreeMap<u32, Functions> {
    let mut modules: BTreeMap<u32, Functions> = BTreeMap::new();
    for (code, _) in image.pieces() {
        if let CodeName::Function { module, function } = code
            && module < MAX_MODULES
            && function < MAX_FUNCTIONS
        {
            let new = Functions { first: function, ..Functions::default() };
            let functions = modules.entry(module).or_insert(new);
            functions.first = functions.first.min(function);
            functions.end = functions.end.max(function + 1);
        }
    }
    modules
}

/// Gives names back what their symbols lack: Wasmtime has cut those, and put a `?` for all that is not graphic ASCII. `all` has the names of the
/// module behind each other, without anything between them, and before them perhaps those of imports. They begin at `from` or behind it, and
/// reach to the end if it `is_last`. Returns where they end.
fn complete(names: &mut BTreeMap<u32, String>, all: &str, from: usize, is_last: bool) -> usize {
    /// Where a name may begin behind the one before it. Imports have no symbols.
    const WINDOW: usize = 1 << 16;
    /// Where names are looked for, in all, for each byte of them.
    const TRIES: usize = 16;
    let (mut from, mut tries) = (from, TRIES.saturating_mul(all.len()));
    let mut cut: Option<(u32, usize)> = None;
    let mut completed = Vec::new();
    for (function, name) in names.iter() {
        let starts = from..all.len().min(from.saturating_add(WINDOW.min(tries)));
        let found = starts.into_iter().find_map(|start| {
            tries -= 1;
            Some((start, end_of_name(name, all.get(start..)?)? + start))
        });
        let Some((start, end)) = found else {
            // Where it begins is not known.
            cut = None;
            continue;
        };
        if let Some((function, before)) = cut.take() {
            completed.push((function, before..start));
        }
        from = end;
        match name.len() == SYMBOL_LENGTH {
            true => cut = Some((*function, start)),
            false => completed.push((*function, start..end)),
        }
    }
    // Behind the last one are another module's.
    let end = if is_last { all.len() } else { from };
    completed.extend(cut.map(|(function, start)| (function, start..end)));
    for (function, range) in completed {
        names.insert(function, all[range].to_owned());
    }
    from
}

/// Where the name ends that `text` begins with, if it is the one that a symbol has as `name`.
fn end_of_name(name: &str, text: &str) -> Option<usize> {
    /// Characters that one `?` stands for, at most.
    const LONGEST_RUN: usize = 256;
    let is_replaced = |char: char| char == '?' || !char.is_ascii_graphic();
    let (mut rest, mut is_in_run) = (text, false);
    // Each run of other characters is one `?`.
    for (number, part) in name.split('?').enumerate() {
        if number > 0 {
            let run = rest.chars().take(LONGEST_RUN).take_while(|char| is_replaced(*char)).map(char::len_utf8).sum();
            let other = rest.get(run..)?;
            // Two in a row are in a name that has no other characters.
            if other.len() == rest.len() && !is_in_run {
                return None;
            }
            (rest, is_in_run) = (other, part.is_empty());
        }
        rest = rest.strip_prefix(part)?;
    }
    Some(text.len() - rest.len())
}

fn encode(functions: &Functions) -> Vec<u8> {
    let (mut types, mut imports, mut defined) = (TypeSection::new(), ImportSection::new(), FunctionSection::new());
    let (mut code, mut names, mut section) = (CodeSection::new(), NameMap::new(), NameSection::new());
    types.ty().function([], []);
    for import in 0..functions.first {
        imports.import("host", &format!("import {import}"), EntityType::Function(0));
    }
    for _ in functions.first..functions.end {
        defined.function(0);
        let mut body = Function::new([]);
        body.instructions().unreachable().end();
        code.function(&body);
    }
    functions.names.iter().for_each(|(function, name)| names.append(*function, name));
    section.functions(&names);
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&defined).section(&code).section(&section);
    module.section(&CustomSection { name: STAND_IN_SECTION.into(), data: (&[]).into() });
    module.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_indices_and_names() {
        let names = BTreeMap::from([(2, "main".to_owned()), (4, "other".to_owned())]);
        let bytes = encode(&Functions { first: 2, end: 5, names });
        let image = ModuleImage::parse(bytes, "x").unwrap();
        assert_eq!((image.first_body(), image.function_name(2), image.function_name(3)), (2, Some("main"), None));
        assert!(image.function_body(4).is_some() && image.function_body(5).is_none());
    }

    #[test]
    fn a_few_symbols_cannot_ask_for_many_functions() {
        let names: Vec<_> = (0..20).map(|module| format!("wasm[{module}]::function[999999]")).collect();
        let bytes = crate::images::tests::image(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let image = CompiledImage::parse(&bytes).unwrap();
        assert_eq!((super::names(&image, "").len(), &*super::names(&image, "x.cwasm")[19]), (20, "x.cwasm[19]"));
        let mut room = MAX_ALL_FUNCTIONS;
        assert!(modules(&image, "", &mut room).is_none());
        let bytes = crate::images::tests::image(&["wasm[0]::function[7]"]);
        let small = modules(&CompiledImage::parse(&bytes).unwrap(), "", &mut room).unwrap();
        assert_eq!((small.len(), small[0].name(), room), (1, "wasm", MAX_ALL_FUNCTIONS - 8));
    }

    #[test]
    fn names_that_were_cut_are_completed() {
        let long = |tail: &str| format!("{}{tail}", "n".repeat(SYMBOL_LENGTH));
        let all = ["import", "a", &long("x"), "b(int, ä  char)", &long("y"), "a??b", "??", "next"].concat();
        let cut = "n".repeat(SYMBOL_LENGTH);
        let names =
            [(3, "a"), (4, &cut), (5, "b(int,?char)"), (6, &cut), (7, "a??b"), (8, "??"), (9, "next"), (10, "missing")];
        let mut names: BTreeMap<u32, String> = names.map(|(function, name)| (function, name.to_owned())).into();
        assert_eq!(complete(&mut names, &all, 0, true), all.len());
        let expected = ["a", &*long("x"), "b(int, ä  char)", &*long("y"), "a??b", "??", "next", "missing"];
        assert_eq!(names.values().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_with_spaces_are_found() {
        let names = (0..50_000).map(|number| (number, format!("f{number}(int,?int)")));
        let all: String = (0..50_000).map(|number| format!("f{number}(int, int)")).collect();
        let mut names: BTreeMap<u32, String> = names.collect();
        assert_eq!(complete(&mut names, &all, 0, true), all.len());
        assert_eq!(names[&49_999], "f49999(int, int)");
    }
}
