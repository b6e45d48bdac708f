//! Plugins that are dynamic libraries: the Go plugin, built as one, says what the built-in one says of the same moments.

use crate::guest::{Place, output, run, was_seen};
use crate::library;
use crate::sampled::fixture;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use wlprof::recording::Recording;
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_loader::LoadedPlugin;
use wlprof_plugin::{
    AttachError, Category, Detection, FrameKey, FrameSink, GuestMemory, Label, Language, Program, SourceFrame,
    ThreadStack, Truncation, Walker, WasmFrame,
};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_run::profile::{Run, RunEnd, RunOptions, symbolize};
use wlprof_wasi::WasiOptions;

/// The Go plugin's library, built on first use.
pub(crate) fn go_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::with_cargo(&["wlprof-go", "--example", "go_plugin"], "examples/libgo_plugin.so"))
}

/// Both plugins at once: each is asked everything, and must answer as the other.
struct Both(Arc<dyn Program>, Arc<dyn Program>);

/// Likewise.
struct BothWalkers(Box<dyn Walker>, Box<dyn Walker>, FrameSink);

/// Ends the process: a panic would be caught as a plugin's.
fn insist(is_same: bool, what: &str) {
    if !is_same {
        eprintln!("the dynamic library says something else: {what}");
        std::process::abort();
    }
}

impl Program for Both {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(BothWalkers(self.0.walker()?, self.1.walker()?, FrameSink::new())))
    }

    fn wanted_globals(&self) -> &[u32] {
        insist(self.0.wanted_globals() == self.1.wanted_globals(), "wanted_globals");
        self.0.wanted_globals()
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let mut other = Vec::new();
        self.0.symbolize(frame, out);
        self.1.symbolize(frame, &mut other);
        assert_eq!(*out, other);
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        assert_eq!(self.0.categorize(frame), self.1.categorize(frame));
        self.0.categorize(frame)
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        let mut other = Vec::new();
        self.0.labels(key, out);
        self.1.labels(key, &mut other);
        assert_eq!(*out, other);
    }

    fn warnings(&self) -> Vec<String> {
        assert_eq!(self.0.warnings(), self.1.warnings());
        self.0.warnings()
    }
}

impl Walker for BothWalkers {
    fn walks_without_allocating(&self) -> bool {
        insist(self.0.walks_without_allocating() == self.1.walks_without_allocating(), "walks_without_allocating");
        self.0.walks_without_allocating()
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let other = &mut self.2;
        other.clear();
        other.set_may_allocate(out.may_allocate());
        let ends = (self.0.walk(guest, wasm, out), self.1.walk(guest, wasm, other));
        insist(ends.0 == ends.1, "end");
        let same = out.len() == other.len() && out.entries().eq(other.entries()) && out.labels() == other.labels();
        insist(same, "frames");
        ends.0
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let mut other = Vec::new();
        self.0.threads(guest, wasm, out);
        self.1.threads(guest, wasm, &mut other);
        insist(*out == other, "threads");
    }
}

fn go_plugin() -> LoadedPlugin {
    LoadedPlugin::load(go_library()).unwrap()
}

#[test]
fn a_loaded_plugin_says_what_it_is() {
    let plugin = go_plugin();
    assert_eq!((plugin.name.as_str(), plugin.version.as_str()), ("wlprof-go", env!("CARGO_PKG_VERSION")));
    assert_eq!(plugin.languages.iter().map(Language::name).collect::<Vec<_>>(), ["go"]);
}

#[test]
fn detection_is_the_same() {
    let plugin = go_plugin();
    for guest in ["go-bench.wasm", "go-js.wasm", "go-stacks-1.21-stripped.wasm", "c-calls.wasm", "python-3.11.wasm"] {
        let image = crate::sampled::image(guest);
        let answers = (wlprof_go::Go.detect(&image), plugin.languages[0].detect(&image));
        assert_eq!(answers.0, answers.1, "{guest}");
        if answers.0 == Detection::No {
            let reasons = (wlprof_go::Go.attach(&image).err(), plugin.languages[0].attach(&image).err());
            assert_eq!(reasons.0, reasons.1, "{guest}");
            assert!(matches!(reasons.0, Some(AttachError(_))));
        }
    }
}

/// Runs a guest with both plugins at 5 kHz, with dumps of all goroutines meanwhile.
fn profile(name: &str, arguments: &[&str]) -> Recording {
    let guest = Guest::load(&fixture(name), &LoadOptions::default()).unwrap();
    let image = guest.code.images[0].clone();
    let built_in = wlprof_go::Go.attach(&*image).unwrap();
    let loaded = go_plugin().languages[0].attach(&*image).unwrap();
    let options = RunOptions {
        wasi: WasiOptions {
            arguments: std::iter::once(&name).chain(arguments).map(|&argument| argument.to_owned()).collect(),
            ..WasiOptions::default()
        },
        invoke: None,
        sampler: Some(SamplerOptions {
            kind: SamplerKind::Signal,
            max_overhead: 1.0,
            ..SamplerOptions::at_rate(5000.0)
        }),
    };
    let run = Run::start(&guest, vec![Some(Arc::new(Both(built_in, loaded)))], options).unwrap();
    let profiler = run.profiler().unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        // It may have ended.
        let _ = profiler.dump();
    }
    assert!(matches!(run.wait(), RunEnd::Exit(_)));
    symbolize(run.finish().unwrap(), &[image], |_| ()).unwrap()
}

#[test]
fn every_sample_is_the_same() {
    for (guest, arguments) in
        [("go-bench.wasm", &["3"][..]), ("go-goroutines-1.27.wasm", &[]), ("go-goroutines-1.21.wasm", &[])]
    {
        let recording = profile(guest, arguments);
        println!("{guest}: {} samples", recording.ticks.sampled);
        assert!(recording.ticks.sampled > 100, "{guest}: {}", recording.ticks.sampled);
        assert!(recording.functions.iter().any(|function| function.name.starts_with("main.")));
    }
}

#[test]
fn the_command_loads_it() {
    let place = Place::new();
    let library = go_library().to_str().unwrap();
    let ran =
        place.run(["--plugin", library, "--lang=go", "-o", "x.wlprof", fixture("go-bench.wasm").to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(was_seen(&place.recording("x.wlprof"), "runtime.goexit"), "the goroutine's stack");
    assert_eq!(place.run(["--plugin", library, fixture("c-traps.wasm").to_str().unwrap()]).code, Some(0));
}

/// What is wrong with a library is found before any of it runs, and before the guest does.
#[test]
fn what_is_no_plugin_is_refused_with_the_reason() {
    let whole = std::fs::read(go_library()).unwrap();
    let elf = goblin::elf::Elf::parse(&whole).unwrap();
    let exported =
        elf.dynsyms.iter().find(|symbol| elf.dynstrtab.get_at(symbol.st_name) == Some("wlprof_plugin")).unwrap();
    let segment = elf.program_headers.iter().find(|segment| segment.vm_range().contains(&(exported.st_value as usize)));
    let segment = segment.unwrap();
    let plugin = (exported.st_value - segment.p_vaddr + segment.p_offset) as usize;
    let with = |at: usize, byte: u8| {
        let mut changed = whole.clone();
        changed[at] = byte;
        changed
    };
    // In the header, bytes 16 and 18 say what it is and for which machine.
    // The system's loader does not look at sections, of which the header says in bytes 40 to 48 and 60 to 64 where they are.
    let loaded = elf.program_headers.iter().filter(|segment| segment.p_type == goblin::elf::program_header::PT_LOAD);
    let end = loaded.map(|segment| segment.p_offset + segment.p_filesz).max().unwrap() as usize;
    let mut without_sections = whole[..end - 1].to_vec();
    without_sections[40..48].fill(0);
    without_sections[60..64].fill(0);
    let name = whole.windows(14).position(|bytes| bytes == b"wlprof_plugin\0").unwrap();
    let cases = [
        ("text", b"not a library".to_vec(), "not a dynamic library"),
        ("cut", whole[..whole.len() / 2].to_vec(), "not a dynamic library, or not a whole one"),
        ("cut without sections", without_sections, "not a whole one: it ends before its last segment does"),
        ("short", whole[..100].to_vec(), "not a dynamic library, or not a whole one"),
        ("program", with(16, 1), "not a dynamic library, or not a whole one: it is of type REL"),
        ("machine", with(18, 0xb7), "built for AARCH64, and this is X86_64"),
        ("entry", with(name, b'x'), "it exports no `wlprof_plugin`: not a wlprof plugin"),
        ("magic", with(plugin, b'W'), "its `wlprof_plugin` does not begin as a plugin does"),
        ("version", with(plugin + 8, 9), "built for plugin ABI 9.0 (supported: 1.x)"),
    ];
    let place = Place::new();
    std::fs::create_dir(place.path("folder.so")).unwrap();
    for (name, message) in
        [("folder.so", "not a dynamic library, or not a whole one: it is no file"), ("/dev/zero", "no file")]
    {
        let ran = place.run(["--plugin", name, fixture("c-traps.wasm").to_str().unwrap()]);
        assert!(ran.code == Some(125) && ran.stderr.contains(message), "{ran:?}");
    }
    for (name, bytes, message) in cases {
        place.file(name, bytes);
        let ran = place.run(["--plugin", name, fixture("c-traps.wasm").to_str().unwrap()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{name}: {ran:?}");
        assert!(
            ran.stderr.contains(&format!("plugin {name}: ")) && ran.stderr.contains(message),
            "{name}: {}",
            ran.stderr
        );
    }
    let ran = place.run(["--plugin", "missing.so", fixture("c-traps.wasm").to_str().unwrap()]);
    assert_eq!(ran.code, Some(125));
    assert!(ran.stderr.contains("plugin missing.so: No such file"), "{}", ran.stderr);
}

/// From the variable's folders and the user's own; what is broken there costs no run.
#[test]
fn plugins_are_found_in_their_folders() {
    let place = Place::new();
    let folders = ["named", "data/wlprof/plugins"].map(|folder| place.path(folder));
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::copy(go_library(), folder.join("libgo_plugin.so")).unwrap();
    }
    std::fs::write(folders[0].join("broken.so"), "no library").unwrap();
    std::fs::write(folders[0].join("readme.txt"), "no library either").unwrap();
    let command = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("WLPROF_PLUGIN_PATH", &folders[0]).env("XDG_DATA_HOME", place.path("data"));
        run(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let listed = command(&["plugins"]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let rows: Vec<Vec<&str>> = listed.stdout.lines().map(|line| line.split('\t').collect()).collect();
    let path = |folder: &PathBuf| folder.join("libgo_plugin.so").display().to_string();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(rows[0], ["NAME", "VERSION", "ABI", "LANGUAGES", "PATH"]);
    assert_eq!(rows[1], ["wlprof-go", version, "1.0", "go", &path(&folders[0])]);
    assert_eq!(rows[2], ["wlprof-go", version, "1.0", "go", &path(&folders[1])]);
    assert_eq!(rows[3], ["go", version, "-", "go", "(built in)"]);
    assert_eq!(rows[4], ["python", version, "-", "python", "(built in)"]);
    assert_eq!(rows[5], ["spidermonkey", version, "-", "spidermonkey", "(built in)"]);
    assert!(rows[6][4].contains("broken.so: not a dynamic library"), "{rows:?}");
    assert_eq!(rows.len(), 7);

    // Nobody's working folder is a place for plugins, nor is a file a folder.
    let mut plugins = place.command(["plugins"]);
    plugins.env("XDG_DATA_HOME", "data").env("HOME", place.path("nobody"));
    let relative = output(plugins.env("WLPROF_PLUGIN_PATH", "named/readme.txt"));
    assert_eq!(relative.stdout.lines().count(), 4);
    assert_eq!(relative.stderr, "note: WLPROF_PLUGIN_PATH names named/readme.txt, which is no folder\n");

    let ran = command(&["-q", "-o", "x.wlprof", fixture("go-bench.wasm").to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("broken.so is left out: not a dynamic library"), "{}", ran.stderr);
    assert!(was_seen(&place.recording("x.wlprof"), "runtime.goexit"));
}
