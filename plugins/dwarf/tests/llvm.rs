//! Compares with a second reader of DWARF, `llvm-symbolizer` of LLVM 14 (Debian's `llvm` package).
//!
//! The golden files hold what it says of every instruction of the user's functions in three pinned fixtures, DWARF 4
//! and 5. To compare every instruction of all fixtures, and write the golden files anew:
//! `cargo test -p wlprof-dwarf --features llvm --test llvm -- --nocapture`

mod module;

use module::{instructions, symbolize};
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{SourceFrame, testing::TestModule};

const GOLDEN: [&str; 3] = ["c-inlined", "c-inlined-dwarf5", "cpp-inlined"];
/// How the names begin that LLVM takes for the function's. Others we have from the name section.
const LINKER_NAMES: [&str; 3] = ["_Z", "_R", "__main_argc_argv"];

#[test]
fn says_what_llvm_says() {
    for name in GOLDEN {
        let golden = std::fs::read_to_string(golden_path(name)).unwrap();
        let module = TestModule::fixture(name);
        let mut symbolizer = Symbolizer::new(&module);
        let ours = runs(&module, |body, offset| {
            symbolize(&mut symbolizer, module.frame(body, offset)).iter().map(text).collect::<Vec<_>>().join(" < ")
        });
        assert!(golden.lines().count() > 50, "{name}: the golden file is nearly empty");
        for (ours, llvm) in ours.lines().zip(golden.lines()) {
            assert_eq!(ours, llvm, "{name}");
        }
        assert_eq!(ours.lines().count(), golden.lines().count(), "{name}");
    }
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// A line for each stretch of instructions that are the same, of the functions whose own file is the user's.
fn runs(module: &TestModule, mut describe: impl FnMut(usize, u32) -> String) -> String {
    let mut out = String::new();
    for (body, offsets) in instructions(module).iter().enumerate() {
        let mut runs: Vec<(u32, String)> = Vec::new();
        for &offset in offsets {
            let text = describe(body, offset);
            if runs.last().is_none_or(|(_, last)| *last != text) {
                runs.push((offset, text));
            }
        }
        if runs.iter().any(|(_, text)| text.rsplit(" < ").next().unwrap().contains(" /testdata/")) {
            for (offset, text) in runs {
                writeln!(out, "{offset:#x} {text}").unwrap();
            }
        }
    }
    out
}

/// The linker's name and the place. Without a line, LLVM and we give different files, both guesses, and LLVM a column.
fn text(frame: &SourceFrame) -> String {
    let name = frame.linkage_name.as_ref().filter(|name| LINKER_NAMES.iter().any(|start| name.starts_with(start)));
    place(name.unwrap_or(&frame.function), frame.file.as_deref(), frame.line, frame.column)
}

fn place(name: &str, file: Option<&str>, line: Option<u32>, column: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{name} {file}:{line}:{}", column.unwrap_or(0)),
        _ => format!("{name} ?"),
    }
}

#[cfg(feature = "llvm")]
mod everywhere {
    use super::*;
    use module::qualifies;
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    const OTHERS: [&str; 7] =
        ["c-inlined-O0", "c-deep", "c-traps", "cpp-shapes", "rust-inlined", "rust-mix", "rust-mix-v0"];

    /// In how many instructions of a fixture LLVM may take a function, or its row, that runs past the end of the body: a
    /// copy that the linker left out in favour of a shorter one and whose DWARF it kept. Seen in C++ alone.
    const DROPPED_COPIES: usize = 40;

    #[test]
    fn says_what_llvm_says_everywhere() {
        for name in GOLDEN.into_iter().chain(OTHERS) {
            let module = TestModule::fixture(name);
            let places: Vec<_> = instructions(&module)
                .into_iter()
                .enumerate()
                .flat_map(|(body, offsets)| offsets.into_iter().map(move |offset| (body, offset)))
                .collect();
            let file = format!("{}/../../target/fixtures/{name}.wasm", env!("CARGO_MANIFEST_DIR"));
            let llvm = llvm(Path::new(&file), &places);
            let mut symbolizer = Symbolizer::new(&module);
            let (mut same, mut less, mut stale) = (0, 0, 0);
            for (&(body, offset), llvm) in places.iter().zip(&llvm) {
                let frames = symbolize(&mut symbolizer, module.frame(body, offset));
                let ours: Vec<_> = frames.iter().map(text).collect();
                if ours == *llvm {
                    same += 1;
                } else if is_less(&ours, llvm) {
                    less += 1;
                } else if is_dropped_copy(&module, body, &frames, &ours, llvm) {
                    stale += 1;
                    assert!(stale <= DROPPED_COPIES, "{name} {offset:#x}: {ours:?} where LLVM says {llvm:?}");
                } else {
                    panic!(
                        "{name} {offset:#x} {frames:?} {}:\nours {ours:#?}\nLLVM {llvm:#?}",
                        module.names[&module.frame(body, 0).function]
                    );
                }
            }
            println!("{name}: {same} the same, {less} that LLVM has no whole name for, {stale} dropped copies");
            assert_eq!(symbolizer.warnings(), [""; 0], "{name}");
            if GOLDEN.contains(&name) {
                let mut llvm = llvm.iter();
                let golden = runs(&module, |_, _| llvm.next().unwrap().join(" < "));
                // The other test may be reading it.
                if std::fs::read_to_string(golden_path(name)).ok().as_ref() != Some(&golden) {
                    std::fs::write(golden_path(name), golden).unwrap();
                }
            }
        }
    }

    /// Whether only the function's name differs, and LLVM has none, or a plain one: units without DWARF, or with line
    /// tables alone.
    fn is_less(ours: &[String], llvm: &[String]) -> bool {
        let (Some((ours, ours_inlined)), Some((llvm, llvm_inlined))) = (ours.split_last(), llvm.split_last()) else {
            return false;
        };
        let place = |text: &str| text.rsplit(' ').next().unwrap().to_owned();
        let less = llvm.starts_with("?? ") || qualifies(ours, llvm);
        less && place(ours) == place(llvm) && ours_inlined == llvm_inlined
    }

    /// Whether LLVM has another row for the same function, or another function than the linker says stands there.
    fn is_dropped_copy(
        module: &TestModule,
        body: usize,
        frames: &[SourceFrame],
        ours: &[String],
        llvm: &[String],
    ) -> bool {
        let name = |text: &str| text.split(' ').next().unwrap().to_owned();
        let linker = &module.names[&module.frame(body, 0).function];
        let physical = frames.last().unwrap();
        let letters = |text: &str| text.replace(' ', "");
        if physical.linkage_name.as_ref() != Some(linker) && letters(&physical.function) != letters(linker) {
            return false;
        }
        let same_name = name(ours.last().unwrap()) == name(llvm.last().unwrap());
        !same_name || (ours.len() == 1 && llvm.len() == 1)
    }

    /// What `llvm-symbolizer` says of each place, innermost function first.
    fn llvm(path: &Path, places: &[(usize, u32)]) -> Vec<Vec<String>> {
        let mut child = Command::new("llvm-symbolizer")
            .args(["--inlines", "--no-demangle", "--obj"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("llvm-symbolizer is missing: `apt-get install llvm`");
        let questions: String = places.iter().map(|(_, offset)| format!("{offset:#x}\n")).collect();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || input.write_all(questions.as_bytes()).unwrap());
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        writer.join().unwrap();
        let answers: Vec<_> = output
            .trim_end()
            .split("\n\n")
            .map(|answer| {
                let lines: Vec<_> = answer.lines().collect();
                lines
                    .chunks(2)
                    .map(|pair| {
                        let mut place_parts = pair[1].rsplitn(3, ':');
                        let mut number = || place_parts.next().unwrap().parse().ok().filter(|&number: &u32| number > 0);
                        let (column, line) = (number(), number());
                        place(pair[0], place_parts.next().filter(|file| *file != "??"), line, column)
                    })
                    .collect()
            })
            .collect();
        assert_eq!(answers.len(), places.len());
        answers
    }
}
