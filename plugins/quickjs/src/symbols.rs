//! Names frames: from a function and a place in it to name, file, line and column, as `new Error().stack` says them.

use crate::{
    functions::Function,
    lines::{self, Position},
};
use wlprof_plugin::{Category, KeyTable, SourceFrame};

/// What stacks call a function that has no name.
const ANONYMOUS: &str = "<anonymous>";
/// Lines beyond this are made by tables that are broken.
const LAST_LINE: u32 = i32::MAX as u32;

/// What `key` is, if it is a frame of a kept function.
pub(crate) fn frame(functions: &KeyTable<Function>, key: u64) -> Option<SourceFrame> {
    let function = functions.get((key >> 32) as u32)?;
    let start = Position { line: function.line, column: function.column };
    // One more than the byte before which the instruction ends; 0 is a function that has not called anything.
    let position = match (key as u32).checked_sub(1) {
        Some(pc) => lines::locate(&function.lines, start, pc),
        None => start,
    };
    let known = |number: u32| (!function.is_native && (1..=LAST_LINE).contains(&number)).then_some(number);
    Some(SourceFrame {
        function: if function.name.is_empty() { ANONYMOUS.to_owned() } else { function.name.clone() },
        linkage_name: None,
        file: function.file.clone(),
        function_line: known(function.line),
        line: known(position.line),
        column: known(position.column),
        category: if is_library(function.is_native, function.file.as_deref()) {
            Category::Library
        } else {
            Category::User
        },
    })
}

/// Native functions, and packages in the folder that package managers put them into.
fn is_library(is_native: bool, file: Option<&str>) -> bool {
    is_native || file.is_some_and(|file| file.split(['/', '\\']).any(|part| part == "node_modules"))
}
