//! The plugins' ABI: what plugins can ask for, through one in C and one in Rust.

use crate::guest::{Place, fixture_bytes, sampled_stacks, was_seen};
use crate::library;
use crate::sampled::fixture;
use std::ops::Range;
use wlprof::module::ModuleImage;
use wlprof::recording::{self, LanguageTruncation};
use wlprof_loader::LoadedPlugin;
use wlprof_plugin::{FrameKey, FrameSink, FunctionImport, GuestMemory, Language, ModuleView, OutOfBounds, WasmFrame};

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
fn what_is_rarely_asked_for_works_in_c_and_in_rust() {
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
        assert!(ran.stderr.contains("color=red ") && ran.stderr.contains("shape=round "), "{}", ran.stderr);
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
            let stack = "main [running] {color=red, shape=round}:\ninner(...)\n[elided](...)\nouter(...)\n\n";
            let expected = format!("call 1, wasi_snapshot_preview1.fd_write:\n{stack}");
            assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        }
    }
}

/// A module with what it knows of others on the same memory.
struct Linked(ModuleImage, [ModuleImage; 2]);

impl ModuleView for Linked {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        self.0.custom_section(name)
    }

    fn function_imports(&self) -> &[FunctionImport] {
        self.0.function_imports()
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.0.function_body(index)
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        self.0.function_name(index)
    }

    fn siblings(&self) -> Vec<&dyn ModuleView> {
        self.1.each_ref().map(|image| image as &dyn ModuleView).to_vec()
    }
}

/// A guest without memory.
struct Nothing;

impl GuestMemory for Nothing {
    fn size(&self) -> u64 {
        0
    }

    fn read(&self, _address: u64, _buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        Err(OutOfBounds)
    }

    fn global(&self, _index: u32) -> Option<u64> {
        None
    }
}

/// Three walkers at once.
#[test]
fn other_modules_on_the_memory_and_other_memories_reach_plugins_in_c_and_in_rust() {
    let place = Place::new();
    let in_c = library::from_c("plugins/additions.c", place.path("additions.so"), &[]);
    let in_rust = library::with_cargo(&["wlprof-plugin", "--example", "additions"], "examples/libadditions.so");
    let image = |text: &str| ModuleImage::parse(wat::parse_str(text).unwrap(), "x.wasm").unwrap();
    let libc =
        r#"(module $libc (import "env" "__table_base" (global i32)) (import "env" "__memory_base" (global i32)))"#;
    let linked = Linked(image("(module $main)"), [image(libc), image("(module $libpython)")]);
    for library in [in_c, in_rust] {
        let plugin = LoadedPlugin::load(&library).unwrap();
        let program = plugin.languages[0].attach(&linked).unwrap();
        let said = program.warnings();
        assert!(said[0].ends_with(" sibling 1 libc 1 sibling 2 libpython 0"), "{said:?}");
        assert_eq!(said[1], "after 0 walks");
        let wasm = [WasmFrame { module: 2, function: 7, code_offset: 9 }, WasmFrame::attached(7, 9)];
        let mut walkers = [(); 3].map(|()| program.walker().unwrap());
        std::thread::scope(|scope| {
            for walker in &mut walkers {
                scope.spawn(|| {
                    let mut sink = FrameSink::new();
                    assert_eq!(walker.walk(&Nothing, &wasm, &mut sink), Ok(()));
                    assert_eq!((sink.len(), sink.labels()), (3, &[10, 11][..]));
                });
            }
        });
        drop(walkers);
        plugin.end_walkers();
        assert_eq!(program.warnings()[1], "after 3 walks");
        let mut names = Vec::new();
        for key in [FrameKey::Own(1), FrameKey::Wasm(wasm[0]), FrameKey::Wasm(wasm[1])] {
            program.symbolize(key, &mut names);
        }
        let names: Vec<_> = names.into_iter().map(|frame| frame.function).collect();
        assert_eq!(names, ["inner", "7 in sibling 2 at 9"]);
        // They end in their turn, when there are many.
        (0..200).for_each(|_| drop(program.walker().unwrap()));
        drop(program);
        plugin.end_walkers();
        assert_eq!(plugin.failure(), None);
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
    let inconsistent = recording::Truncation::Language(LanguageTruncation::Inconsistent);
    assert!(recording.truncated.iter().any(|(reason, _)| *reason == inconsistent), "{:?}", recording.truncated);
    assert!(recording.label_sets.is_empty(), "{:?}", recording.label_sets);
}
