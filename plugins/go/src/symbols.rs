//! Names, files and lines of pcs.

use crate::{
    category::categorize,
    code::Code,
    decoded::DecodedTables,
    pclntab::{self, Function},
};
use wlprof_plugin::{Category, SourceFrame};

/// Go's inliner has a budget that ends long before this.
pub(crate) const MOST_INLINED: usize = 64;

/// Appends the frames at `pc`, innermost inlined call first. Nothing if there is no such pc. Between two blocks that is the
/// function alone, without a line.
///
/// Without the tree of inlined calls lines would lie: those of a call to an inlined `fmt.Println` are `print.go`'s, in
/// the name of the function it was inlined into.
pub(crate) fn frames(code: &Code, tables: &mut DecodedTables, pc: u64, out: &mut Vec<SourceFrame>) {
    let table = &code.table;
    let (pc, is_between_blocks) = pclntab::unmarked(pc);
    let Some(function) = table.index(pc).and_then(|index| table.function(index)) else { return };
    let first = out.len();
    let mut block = pclntab::block(pc);
    let tree = code.moduledata.gofunc.and_then(|gofunc| table.inline_tree(&function, gofunc));
    for _ in 0..MOST_INLINED {
        let Some(call) = tree.and_then(|tree| table.inlined(tables, &function, tree, block)) else { break };
        out.push(frame(code, tables, &function, block, &call.name, call.start_line, call.id));
        if block == call.parent_block {
            break;
        }
        block = call.parent_block;
    }
    let name = table.name(&function).unwrap_or_default();
    let mut whole = frame(code, tables, &function, block, &name, table.start_line(&function), function.id);
    if is_between_blocks {
        out.truncate(first);
        whole.line = None;
    }
    out.push(whole);
}

fn frame(
    code: &Code,
    tables: &mut DecodedTables,
    function: &Function,
    block: u32,
    name: &str,
    start_line: Option<u32>,
    id: u8,
) -> SourceFrame {
    let table = &code.table;
    let file = table.file(tables, function, block);
    let short = without_type_arguments(name);
    SourceFrame {
        // Go leaves wrappers out of its own tracebacks.
        category: if Some(id) == code.wrapper_id() { Category::Runtime } else { categorize(name, file.as_deref()) },
        linkage_name: short.is_some().then(|| name.to_owned()),
        function: short.unwrap_or_else(|| name.to_owned()),
        file,
        function_line: start_line,
        line: table.line(tables, function, block),
        column: None,
    }
}

/// `main.sum[...]` for `main.sum[go.shape.int]`, as Go's own tracebacks and profiles have it; `None` if it is the same.
pub(crate) fn without_type_arguments(name: &str) -> Option<String> {
    let open = name.find('[')?;
    let close = name.rfind(']').filter(|close| *close > open)?;
    let short = format!("{}[...]{}", &name[..open], &name[close + 1..]);
    (short != name).then_some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_arguments_are_cut_as_go_does() {
        let cases = [
            ("main.f", None),
            ("main.f[...]", None),
            ("main.sum[go.shape.int]", Some("main.sum[...]")),
            ("main.(*list[go.shape.[]uint8]).add.func1", Some("main.(*list[...]).add.func1")),
            ("main.f]x[", None),
        ];
        for (name, expected) in cases {
            assert_eq!(without_type_arguments(name).as_deref(), expected, "{name}");
        }
    }
}
