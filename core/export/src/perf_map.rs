//! Perf maps: which addresses of a process are which function, for code that is in no file.
//!
//! `perf report` looks for `/tmp/perf-PID.map` when samples lie in anonymous memory. A line is `START SIZE NAME`, both
//! numbers in hex without `0x` (perf stops at the `x`), the name to the end of the line: `tools/perf/Documentation/
//! jit-interface.txt` in Linux.

use super::plain_text::plain_name;
use crate::NativeFunction;
use std::borrow::Cow;
use std::io::{self, Write};

/// perf drops lines whose name is shorter: `dso__load_perf_map` in `tools/perf/util/symbol.c`, in 6.1 and since the
/// beginning. A function `f` had no name.
const SHORTEST_NAME: usize = 3;

/// Writes the line of `function`.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_function(function: &NativeFunction<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut name = plain_name(&function.name);
    if name.len() < SHORTEST_NAME {
        name = Cow::Owned(format!("wasm::{name}"));
    }
    writeln!(out, "{:x} {:x} {name}", function.address, function.code.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> String {
        let function =
            NativeFunction { address: 0x7f00, code: &[0; 18], name: name.into(), lines: Vec::new(), unwind: None };
        let mut out = Vec::new();
        write_function(&function, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_hex_and_names_are_what_perf_takes() {
        assert_eq!(line("work::<impl T>::go"), "7f00 12 work::<impl T>::go\n");
        assert_eq!(line("f"), "7f00 12 wasm::f\n");
        assert_eq!(line("x\n0 ffffffff y\0\u{1b}[2J"), "7f00 12 x 0 ffffffff y  [2J\n");
        assert_eq!(line(""), "7f00 12 [unnamed]\n");
    }
}
