//! The call tree's page: the calls as data, and a script that makes their rows when a caller is opened.

use crate::escape::single_line;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use wlprof_export::short_path;
use wlprof_recording::{CallTree, Recording};

/// The script of the call tree's page, which stands beside it as `call-tree.js`.
pub const SCRIPT: &str = include_str!("call_tree.js");

/// Calls of one page: what a browser reads in a moment.
const MOST_CALLS: usize = 50_000;

const ROWS: &str = "<table role=\"treegrid\" aria-label=\"Calls\">\n<thead><tr><th>total</th><th>self</th><th>function</th></tr></thead>\n\
     <tbody></tbody>\n</table>\n<p id=\"left-out\"></p>\n";

/// What the script reads.
#[derive(Serialize)]
struct Data {
    /// The weights are bytes, and not nanoseconds.
    is_memory: bool,
    all: u64,
    left_out: usize,
    /// Names and places.
    functions: Vec<(String, String)>,
    /// Of each call the caller's place here, or -1, the function's in `functions`, its own weight and all.
    calls: Vec<(i64, usize, u64, u64)>,
}

/// The part of the page below its navigation.
pub(super) fn part(recording: &Recording) -> io::Result<String> {
    let tree = CallTree::of(recording, MOST_CALLS);
    let mut places = BTreeMap::new();
    let mut functions = Vec::new();
    let mut calls = Vec::new();
    for call in &tree.calls {
        let function = *places.entry(call.function).or_insert_with(|| {
            let function = &recording.functions[call.function as usize];
            let place = match (&function.file, function.line) {
                (Some(file), Some(line)) => format!("{}:{line}", short_path(file)),
                (Some(file), None) => short_path(file).to_owned(),
                _ => String::new(),
            };
            functions.push((single_line(&function.name), single_line(&place)));
            functions.len() - 1
        });
        let caller = call.caller.map_or(-1, |caller| caller as i64);
        calls.push((caller, function, call.self_ns, call.total_ns));
    }
    let data =
        Data { is_memory: recording.part.is_some(), all: tree.all_ns, left_out: tree.left_out, functions, calls };
    // Nothing in it ends the element that it is in.
    let json = serde_json::to_string(&data)?.replace('<', "\\u003c");
    Ok(format!(
        "{ROWS}<script type=\"application/json\" id=\"calls\">{json}</script>\n<script src=\"call-tree.js\"></script>\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    #[test]
    fn names_end_no_element_and_come_back_as_they_are() {
        let mut recording = example();
        let hostile = "</script><script>alert('1')</script><!--";
        recording.functions.iter_mut().for_each(|function| function.name = hostile.to_owned());
        let part = part(&recording).unwrap();
        assert_eq!(part.matches("<script").count(), 2, "{part}");
        assert!(!part.contains("<!--"), "{part}");
        let (_, rest) = part.split_once("id=\"calls\">").unwrap();
        let data: serde_json::Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["functions"][0][0], hostile);
        let roots: u64 = data["calls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|call| call[0] == -1)
            .map(|call| call[3].as_u64().unwrap())
            .sum();
        assert_eq!((data["all"].as_u64(), roots), (Some(13_000_000), 13_000_000));
    }
}
