//! Names frames: from a code object and a place in it to function, file, line and column.

use crate::{
    code::{Code, CodeId, KeptCodes},
    locations::LocationIndex,
};
use std::collections::HashMap;
use wlprof_plugin::{Category, SourceFrame};

/// The location tables of the code objects named so far.
pub(crate) type Indices = HashMap<u32, LocationIndex>;

/// What `key` is, if it is a frame of a kept code object.
pub(crate) fn frame(codes: &KeptCodes, indices: &mut Indices, key: u64) -> Option<SourceFrame> {
    let id = (key >> 32) as u32;
    let code = codes.get(CodeId(id))?;
    let (table, start) = (&code.location_table, code.first_line);
    let index = indices.entry(id).or_insert_with(|| LocationIndex::new(table, start));
    // One more than the code unit; 0 is a function that has not begun, which is at its first line.
    let unit = (key as u32).checked_sub(1);
    let position = unit.and_then(|unit| index.locate(table, start, unit));
    let first_line = (code.first_line > 0).then_some(code.first_line);
    Some(SourceFrame {
        function: code.qualified_name.clone(),
        linkage_name: None,
        file: Some(code.file.to_string()),
        function_line: first_line,
        line: match (unit, position) {
            (None, _) => first_line,
            (_, position) => match position.and_then(|position| position.line) {
                Some(0) => first_line,
                line => line,
            },
        },
        column: position.and_then(|position| position.column).map(|column| column.saturating_add(1)),
        category: category(code),
    })
}

/// The standard library and installed packages are known by their folders.
fn category(code: &Code) -> Category {
    let file = &*code.file;
    let is_library = file.starts_with("<frozen ")
        || file.split(['/', '\\']).any(|part| part == "site-packages" || part == "dist-packages")
        || in_standard_library(file);
    if is_library { Category::Library } else { Category::User }
}

/// Whether a folder or archive of the path is called as CPython calls that of its library: `lib/python3.11`,
/// `python311.zip`.
fn in_standard_library(file: &str) -> bool {
    let parts: Vec<&str> = file.split(['/', '\\']).collect();
    let Some((_, folders)) = parts.split_last() else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    folders.iter().enumerate().any(|(index, part)| {
        let Some(version) = part.strip_prefix("python3") else { return false };
        let is_archive = version.strip_suffix(".zip").is_some_and(is_number);
        let is_folder = index > 0 && folders[index - 1] == "lib" && version.strip_prefix('.').is_some_and(is_number);
        is_archive || is_folder
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_categories() {
        for (file, expected) in [
            ("/app/main.py", Category::User),
            ("main.py", Category::User),
            ("<string>", Category::User),
            ("/python3x.zip/a.py", Category::User),
            ("/home/lib/python3.11.py", Category::User),
            ("<frozen importlib._bootstrap>", Category::Library),
            ("/usr/local/lib/python311.zip/json/decoder.py", Category::Library),
            ("/usr/local/lib/python3.13/json/decoder.py", Category::Library),
            ("/app/site-packages/yaml/__init__.py", Category::Library),
        ] {
            let code =
                Code { file: file.into(), qualified_name: "f".into(), first_line: 1, location_table: Box::default() };
            assert_eq!(category(&code), expected, "{file}");
        }
    }
}
