//! The versions of the plugins' ABI: what 1.1 added, through a plugin in C and one in Rust, and plugins built for 1.0.

use crate::guest::{Place, fixture_bytes, run, sampled_stacks, was_seen};
use crate::library;
use crate::sampled::fixture;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use wlprof::module::ModuleImage;
use wlprof::recording::{LanguageTruncation, Truncation};
use wlprof_plugin::ModuleView;

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(path)
}

/// Bytes of memory that the plugins look at at once.
const PAGE: usize = 4096;

/// What the plugins should be told of the guest, with the number of the first page that holds data and the sum of its bytes.
fn told(guest: &str) -> String {
    let image = ModuleImage::parse(fixture_bytes(guest), guest).unwrap();
    let mut page = vec![0; PAGE];
    let used = |page: &mut Vec<u8>, at: usize| {
        image.initial_data((at * PAGE) as u64, page).unwrap();
        page.iter().any(|byte| *byte != 0)
    };
    let at = (0..).find(|at| used(&mut page, *at)).unwrap();
    let sum: u64 = page.iter().map(|byte| u64::from(*byte)).sum();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let evaluate = (0..1000).find(|&index| image.function_name(index) == Some("evaluate")).unwrap();
    let pointer = image.table_function(0, 1).unwrap();
    let hash = image.code_hash().unwrap();
    format!("1 evaluate {evaluate} pointer 1 to {pointer} data {at} {sum} hash {}", hex(hash))
}

#[test]
fn what_1_1_added_works_in_c_and_in_rust() {
    let (place, guest) = (Place::new(), "c-frames.wasm");
    let in_c = library::from_c("plugins/additions.c", place.path("additions.so"), &[]);
    let in_rust = library::with_cargo(&["wlprof-plugin", "--example", "additions"], "examples/libadditions.so");
    let truth = place.run(["-q", "--sampler=off", fixture(guest).to_str().unwrap()]).stdout;
    for library in [in_c, in_rust] {
        let options = ["--lang=additions", "--plugin", library.to_str().unwrap()];
        let ran = place.run(options.into_iter().chain([
            "-o",
            "x.wlprof",
            "-o",
            "x.folded",
            fixture(guest).to_str().unwrap(),
        ]));
        assert_eq!((ran.code, &ran.stdout), (Some(0), &truth), "{}", ran.stderr);
        assert!(ran.stderr.contains(&told(guest)), "{}", ran.stderr);
        assert!(ran.stderr.contains("color: red ") && ran.stderr.contains("shape: round "), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        let whole = |stack: &Vec<&str>| stack.ends_with(&["inner", "[elided]", "outer"]);
        let stacks: Vec<_> = sampled_stacks(&recording).filter(|stack| stack.contains(&"inner")).collect();
        assert!(!stacks.is_empty() && stacks.iter().all(whole), "{stacks:?}");
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(recording.label_sets, [[label("color", "red"), label("shape", "round")]]);
        let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
        assert!(folded.lines().any(|line| line.starts_with("outer;[elided];inner ")), "{folded}");
        // It tells of no threads: the stack is that of its walk.
        for shown in ["--threads", "--goroutines"] {
            let dump = ["dump", shown, "--at-import", "fd_write"];
            let ran = place.run(dump.into_iter().chain(options).chain([fixture(guest).to_str().unwrap()]));
            assert_eq!((ran.code, &ran.stdout), (Some(0), &truth), "{}", ran.stderr);
            let stack = "main [running]:\ninner(...)\n[elided](...)\nouter(...)\n\n";
            let expected = format!("call 1, wasi_snapshot_preview1.fd_write:\n{stack}");
            assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        }
    }
}

#[test]
fn more_keys_of_labels_than_there_is_room_for_are_not_believed() {
    let place = Place::new();
    let library = library::from_c("plugins/additions.c", place.path("additions.so"), &["-DWILD_LABELS"]);
    let guest = fixture("c-frames.wasm");
    let options = ["--lang=additions", "-o", "x.wlprof", "--plugin", library.to_str().unwrap()];
    let ran = place.run(options.into_iter().chain([guest.to_str().unwrap()]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let recording = place.recording("x.wlprof");
    assert!(was_seen(&recording, "evaluate") && !was_seen(&recording, "inner"), "{}", ran.stderr);
    let inconsistent = Truncation::Language(LanguageTruncation::Inconsistent);
    assert!(recording.truncated.iter().any(|(reason, _)| *reason == inconsistent), "{:?}", recording.truncated);
    assert!(recording.label_sets.is_empty(), "{:?}", recording.label_sets);
}

#[test]
fn plugins_built_with_the_header_of_1_0_work() {
    let place = Place::new();
    let header = testdata("plugins/abi-1.0");
    let text = std::fs::read_to_string(header.join("wlprof_plugin.h")).unwrap();
    assert!(text.contains("#define WLPROF_ABI_MINOR 0\n") && !text.contains("1.1"));
    // Before the folder of today's header.
    let options = [&format!("-I{}", header.display())[..]];
    let tiny = library::from_c("tiny/tiny_plugin.c", place.path("libtiny.so"), &options);
    let mut check = place.command(["plugins", "check"]);
    check.arg(tiny).arg("--guest").arg(fixture("tiny.wasm"));
    check.arg("--dir").arg(format!("{}::.", testdata("tiny").display())).arg("demo.tiny");
    let checked = run(check.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(checked.stdout.contains("check is a plugin ... ok (tiny 0.1.0, ABI 1.0)"), "{}", checked.stdout);
    assert!(checked.stdout.ends_with("check result: ok. 12 passed; 0 failed\n"), "{}", checked.stdout);
}
