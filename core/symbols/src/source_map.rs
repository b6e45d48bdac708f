//! Lines of wasm code from a source map: from the offset of an instruction in its module to a file, a line and a column.
//!
//! In the source map of a module, a "column" of the first generated line is an offset in the module. A map has no functions and no
//! inlined calls: what the compiler put into a function from another file is shown as a function that was inlined there.

use oxc_sourcemap::SourceMap as Map;
use std::ops::Range;
use wlprof_plugin::{Category, SourceFrame};

/// What code of another file is called in the function that it was put into.
const INLINED: &str = "[inlined]";

/// A place in the source, for all code from its offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Offset in the module.
    offset: u32,
    /// Place of the file among [`SourceMap::files`].
    file: u32,
    /// From 1.
    line: u32,
    /// From 1.
    column: u32,
}

/// The places that a source map has.
#[derive(Debug)]
pub(super) struct SourceMap {
    /// In order of their offsets.
    places: Vec<Place>,
    files: Vec<String>,
}

impl SourceMap {
    /// Reads the JSON of a map.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(json).map_err(|_| "it is not UTF-8".to_owned())?;
        let map = Map::from_json_string(text).map_err(|error| error.to_string())?;
        let root = map.get_source_root().unwrap_or_default().trim_end_matches('/');
        let name = |source: &str| {
            let name = if root.is_empty() { source.to_owned() } else { format!("{root}/{source}") };
            name.strip_prefix("./").unwrap_or(&name).to_owned()
        };
        let files: Vec<String> = map.get_sources().map(name).collect();
        // What stands for no source is of the place before: compilers leave out operators within an expression, not statements.
        let places = map.get_tokens().filter(|token| token.get_dst_line() == 0).filter_map(|token| {
            let file = token.get_source_id().filter(|file| (*file as usize) < files.len())?;
            let [line, column] = [token.get_src_line(), token.get_src_col()].map(|number| number.saturating_add(1));
            Some(Place { offset: token.get_dst_col(), file, line, column })
        });
        let mut places: Vec<Place> = places.collect();
        places.sort_by_key(|place| place.offset);
        Ok(Self { places, files })
    }

    /// Adds the place of the instruction at `offset` to the frame of its function, whose body is at `body` in the module. Code of
    /// another file than the one that the function begins in becomes a frame of its own, before it.
    pub(super) fn locate(&self, body: Range<u32>, offset: u32, frame: SourceFrame, out: &mut Vec<SourceFrame>) {
        let first = self.places.partition_point(|place| place.offset < body.start);
        let next = self.places.partition_point(|place| place.offset <= offset);
        let in_body = self.places.get(first..next).unwrap_or_default();
        // Code before the first place is the function's beginning.
        let own = self.places.get(first).filter(|place| place.offset < body.end);
        let (Some(own), place) = (own, in_body.last()) else { return out.push(frame) };
        let file = |place: &Place| self.files.get(place.file as usize).cloned();
        let with_place = |frame: SourceFrame, place: &Place| {
            let file = file(place);
            let category = file.as_deref().map_or(frame.category, category);
            SourceFrame { file, line: Some(place.line), column: Some(place.column), category, ..frame }
        };
        match place {
            Some(place) if place.file == own.file => out.push(with_place(frame, place)),
            Some(place) => {
                let inlined = SourceFrame { function: INLINED.to_owned(), ..SourceFrame::default() };
                out.push(with_place(inlined, place));
                out.push(SourceFrame { line: None, column: None, ..with_place(frame, own) });
            }
            None => out.push(SourceFrame { line: None, column: None, ..with_place(frame, own) }),
        }
    }
}

/// The kind of code in a file: AssemblyScript's own library is below `~lib`.
fn category(file: &str) -> Category {
    let library = file.split_once("~lib/").map(|(_, path)| path);
    match library {
        Some(path) if path.starts_with("rt/") => Category::Runtime,
        Some(_) => Category::Library,
        None => Category::User,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of these sources with such mappings.
    fn map(sources: &str, mappings: &str) -> Result<SourceMap, String> {
        SourceMap::read(format!(r#"{{"version":3,"sources":{sources},"names":[],"mappings":"{mappings}"}}"#).as_bytes())
    }

    /// Function, file, line and column of a frame.
    type Shown = (String, Option<String>, Option<u32>, Option<u32>);

    /// What is at an offset of a function from 10 to 20.
    fn at(map: &SourceMap, offset: u32) -> Vec<Shown> {
        let mut out = Vec::new();
        let frame = SourceFrame { function: "f".to_owned(), ..SourceFrame::default() };
        map.locate(10..20, offset, frame, &mut out);
        out.into_iter().map(|frame| (frame.function, frame.file, frame.line, frame.column)).collect()
    }

    fn shown(function: &str, file: &str, place: Option<(u32, u32)>) -> Shown {
        let (line, column) = place.unzip();
        (function.to_owned(), Some(file.to_owned()), line, column)
    }

    #[test]
    fn an_instruction_is_at_the_last_place_before_it_in_its_own_function() {
        // Offset 8: line 2. Offset 12: line 3, column 5. Offset 14: nothing. Offset 16: another file. Offset 20: line 1.
        let map = map(r#"["a.ts","~lib/math.ts"]"#, "QACA,IACI,E,ECFJ,IDAA").unwrap();
        assert_eq!(at(&map, 10), [shown("f", "a.ts", None)], "the place before is another function's");
        assert_eq!(at(&map, 12), [shown("f", "a.ts", Some((3, 5)))]);
        assert_eq!(at(&map, 15), [shown("f", "a.ts", Some((3, 5)))]);
        assert_eq!(at(&map, 19), [shown(INLINED, "~lib/math.ts", Some((1, 1))), shown("f", "a.ts", None)]);
        let mut out = Vec::new();
        map.locate(10..20, 17, SourceFrame::default(), &mut out);
        assert_eq!(out[0].category, Category::Library);
        out.clear();
        map.locate(30..40, 35, SourceFrame::default(), &mut out);
        assert_eq!(out, [SourceFrame::default()], "nothing is known of that function");
    }

    #[test]
    fn names_of_files_have_the_root_of_all() {
        let with_root = |root: &str| {
            let json =
                format!(r#"{{"version":3,"sources":["a.ts"],"sourceRoot":"{root}","names":[],"mappings":"UAAA"}}"#);
            at(&SourceMap::read(json.as_bytes()).unwrap(), 10).remove(0).1.unwrap()
        };
        assert_eq!(["./shop", "/src/", ""].map(with_root), ["shop/a.ts", "/src/a.ts", "a.ts"]);
    }

    #[test]
    fn what_is_no_map_is_an_error_and_hostile_ones_end() {
        let deep = "[".repeat(1 << 20);
        let nested = format!(r#"{{"version":3,"sources":[],"names":[],"mappings":"","x":{deep}"#);
        for json in
            ["", "{}", "null", r#"{"version":2,"sources":[],"names":[],"mappings":""}"#, deep.as_str(), nested.as_str()]
        {
            assert!(SourceMap::read(json.as_bytes()).is_err(), "{}", &json[..json.len().min(40)]);
        }
        assert!(SourceMap::read(b"\xff").is_err());
        // Numbers past their ends, sources that there are not, characters of no number: an error, or no place.
        for mappings in
            ["UCAA", "UFAA", "UADA", "!", "U,", ";;;;UAAA", "////////////////////", "gggggggggggggggE", "UAAA,D"]
        {
            if let Ok(map) = map(r#"["a.ts"]"#, mappings) {
                (0..30).for_each(|offset| _ = at(&map, offset));
            }
        }
        let many = map(r#"["a.ts"]"#, &"AAAA,".repeat(1 << 20)).unwrap();
        assert_eq!(at(&many, 15).len(), 1);
    }
}
