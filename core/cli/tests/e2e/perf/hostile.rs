//! Names that a guest chose to hurt, and files that lie where wlprof is about to write.

use super::{output, remove_perf_map, shell};
use crate::guest::{Place, fixture, fixture_bytes};
use crate::sections::{Section, join, split, unsigned};
use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;

/// Name of a hostile function, and what is left of it.
const NAMES: [(&[u8], &str); 7] = [
    (b"two\nlines", "two lines"),
    (b"ends\0here", "ends here"),
    (b"\x1b[2J\x1b]0;title\x07 clears", "[2J ]0:title  clears"),
    (b"\xc2\x9b31m red", "31m red"),
    (b"f 7fff00000000 ffffff forged", "f 7fff00000000 ffffff forged"),
    (b"ab", "ab"),
    (b"a;b", "a:b"),
];

/// The C guest that works for a while, its function `work` under another name and without DWARF to say so.
fn guest_with_name(name: &[u8]) -> Vec<u8> {
    let mut sections: Vec<Section> =
        split(&fixture_bytes("c-traps.wasm")).into_iter().filter(|section| section.id != 0).collect();
    let image = wlprof::module::ModuleImage::parse(fixture_bytes("c-traps.wasm"), "").unwrap();
    let functions = 0..u32::MAX;
    let work = functions
        .take_while(|index| *index < 10_000)
        .find(|index| wlprof_plugin::ModuleView::function_name(&image, *index) == Some("work"))
        .unwrap();
    let naming = [&[1][..], &unsigned(work as usize), &unsigned(name.len()), name].concat();
    sections.push(Section::custom("name", &[&[1][..], &unsigned(naming.len()), &naming].concat()));
    join(&sections)
}

#[test]
fn hostile_names_stay_names() {
    for (name, expected) in NAMES {
        let place = Place::new();
        place.file("guest.wasm", guest_with_name(name));
        let ran = shell(&place, "perf record -q -e cpu-clock:u -g -o map.data wlprof --format=perfmap guest.wasm");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let script = output(&place, "perf script -i map.data -F comm,ip,sym");
        remove_perf_map(&ran.stderr);
        let in_map = if expected.len() < 3 { format!("wasm::{expected}") } else { expected.to_owned() };
        assert!(script.lines().any(|line| line.ends_with(&format!(" {in_map}"))), "{in_map:?} not in {script}");
        assert_plain(&script);

        output(&place, "perf record -q -e cpu-clock:u -g -k mono -o c.data wlprof --format=jitdump guest.wasm");
        output(&place, "perf inject --jit -i c.data -o named.data");
        let script = output(&place, "perf script -i named.data -F comm,ip,sym");
        assert!(script.lines().any(|line| line.ends_with(&format!(" {expected}"))), "{expected:?} not in {script}");
        assert_plain(&script);

        output(&place, "wlprof -q -o x.perf.data -o x.folded guest.wasm");
        let script = output(&place, "perf script -i x.perf.data -F comm,ip,sym");
        assert!(script.lines().any(|line| line.ends_with(&format!(" {expected}"))), "{expected:?} not in {script}");
        assert_plain(&script);
        let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
        assert!(folded.lines().any(|line| line.contains(&format!(";{expected} "))), "{folded}");
    }
}

/// The guest's own name and arguments come from whoever made the recording.
#[test]
fn a_guest_with_a_hostile_name_is_only_a_name() {
    let place = Place::new();
    let name = "e\u{1b}[31m\nf.wasm";
    place.file(name, fixture_bytes("c-traps.wasm"));
    assert_eq!(place.run(["-q", "-o", "x.perf.data", name, "a\nb\u{1b}"]).code, Some(0));
    let script = output(&place, "perf script -i x.perf.data -F comm,ip,sym");
    assert!(script.contains("e [31m f"), "{script}");
    assert_plain(&script);
    let header = output(&place, "perf report -i x.perf.data --header-only");
    assert!(header.contains("cmdline : wlprof e [31m f.wasm a b"), "{header}");
    assert_plain(&header);
}

/// Wasmtime's names of stubs, given to functions.
#[test]
fn functions_named_like_stubs_stay_functions() {
    for name in ["array_to_wasm_trampoline[1]", "module_start", "wasmtime_builtin_memory_grow", "f"] {
        let place = Place::new();
        place.file("guest.wasm", guest_with_name(name.as_bytes()));
        assert_eq!(place.run(["-q", "-o", "x.folded", "guest.wasm"]).code, Some(0));
        let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
        let is_whole = |line: &&str| line.starts_with("_start;") && line.contains(&format!(";{name} "));
        assert!(folded.lines().any(|line| is_whole(&line)), "{folded}");
    }
}

fn assert_plain(text: &str) {
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}

#[test]
fn huge_and_broken_names_are_survived() {
    for name in [&vec![b'x'; 1 << 20][..], b"\xff\xfe\xc0", b"", b" "] {
        let place = Place::new();
        place.file("guest.wasm", guest_with_name(name));
        let ran = place.run(["--format=perfmap", "guest.wasm"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let path = ran.stderr.split_whitespace().find(|word| word.starts_with("/tmp/perf-")).unwrap();
        let map = std::fs::read_to_string(path.trim_end_matches(':')).expect("UTF-8, or samply refuses it");
        remove_perf_map(&ran.stderr);
        assert!(map.lines().count() > 20 && map.lines().all(is_map_line), "{map}");
        assert_eq!(place.run(["--format=jitdump", "guest.wasm"]).code, Some(0));
        let dump = place.files().into_iter().find(|name| name.starts_with("jit-")).unwrap();
        assert!(read_jitdump(&place, &dump) > 20);
        assert_eq!(place.run(["-o", "x.perf.data", "guest.wasm"]).code, Some(0));
        output(&place, "perf report -i x.perf.data --stdio");
    }
}

fn is_map_line(line: &str) -> bool {
    let mut parts = line.splitn(3, ' ');
    let mut number = || parts.next().is_some_and(|part| u64::from_str_radix(part, 16).is_ok());
    number() && number() && parts.next().is_some_and(|name| name.len() >= 3)
}

/// Reads a dump to its end with a reader that is not perf's and gives the number of functions.
fn read_jitdump(place: &Place, name: &str) -> u64 {
    let mut reader = JitDumpReader::new(File::open(place.path(name)).unwrap()).unwrap();
    assert_eq!(format!("jit-{}.dump", reader.header().pid), name);
    let (mut functions, mut lines, mut unwound, mut closed) = (0, None::<Vec<u64>>, false, false);
    while let Some(record) = reader.next_record().unwrap() {
        assert!(!closed, "something follows the end");
        match record.parse().unwrap() {
            JitDumpRecord::CodeDebugInfo(info) => {
                let addresses: Vec<u64> = info.entries.iter().map(|entry| entry.code_addr).collect();
                assert!(addresses.is_sorted() && addresses[0] == info.code_addr, "{addresses:x?}");
                lines = Some(addresses);
            }
            JitDumpRecord::CodeUnwindingInfo(_) => unwound = true,
            JitDumpRecord::CodeLoad(load) => {
                assert_eq!((load.code_index, load.pid), (functions, reader_pid(name)));
                let end = load.code_addr + load.code_bytes.len() as u64;
                if let Some(addresses) = lines.take() {
                    assert_eq!(addresses[0], load.code_addr);
                    assert_eq!(addresses.last(), Some(&end), "perf would lose the last line");
                }
                assert!(std::mem::take(&mut unwound), "no unwinding information");
                functions += 1;
            }
            _ => closed = true,
        }
    }
    assert!(closed);
    functions
}

fn reader_pid(name: &str) -> u32 {
    name.trim_start_matches("jit-").trim_end_matches(".dump").parse().unwrap()
}

#[test]
fn a_jitdump_is_read_by_another_reader() {
    for (guest, least) in [("rust-mix.wasm", 100), ("go-bench.wasm", 1000), ("wat-no-names.wat", 1)] {
        let place = Place::new();
        assert_eq!(place.run(["-q", "--format=jitdump", fixture(guest).to_str().unwrap()]).code, Some(0));
        let functions = read_jitdump(&place, &place.files()[0]);
        assert!(functions >= least, "{guest}: {functions}");
    }
}

#[test]
fn a_jitdump_of_what_was_sampled_is_small_and_names_it() {
    let place = Place::new();
    let guest = fixture("go-bench.wasm").display().to_string();
    let options = "--format=jitdump --jitdump-functions=sampled -o x.wlprof";
    output(&place, &format!("perf record -q -e cpu-clock:u -k mono -o c.data wlprof -q {options} {guest} 2"));
    let dump = place.files().into_iter().find(|name| name.starts_with("jit-")).unwrap();
    let functions = read_jitdump(&place, &dump);
    assert!(functions < 1000, "{functions}");
    output(&place, "perf inject --jit -i c.data -o named.data");
    let script = output(&place, "perf script --comms guest -i named.data -F comm,ip,sym");
    let named = script.lines().filter(|line| line.contains("main.slowHash")).count();
    assert!(named * 5 > script.lines().count(), "{named} of {}", script.lines().count());
    assert!(place.recording("x.wlprof").ticks.sampled > 50);
}

/// Runs wlprof with something at the path of its perf map, and gives what it says.
fn with_something_at_the_path(place: &Place, make: &str) -> crate::guest::Ran {
    // The shell's number becomes wlprof's.
    let guest = fixture("c-inlined.wasm");
    shell(place, &format!("path=/tmp/perf-$$.map; {make}; exec wlprof --format=perfmap {}", guest.display()))
}

#[test]
fn what_is_not_the_users_own_file_is_neither_followed_nor_replaced() {
    let place = Place::new();
    place.file("target", "precious");
    for make in ["ln -s \"$PWD/target\" $path", "ln -s \"$PWD/missing\" $path", "mkdir $path", "mkfifo $path"] {
        let ran = with_something_at_the_path(&place, make);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{make}: the guest ran");
        assert!(ran.stderr.contains("not a file of yours; remove it"), "{make}: {}", ran.stderr);
        assert_eq!(std::fs::read_to_string(place.path("target")).unwrap(), "precious");
        assert_eq!(place.files(), ["target"], "{make}");
        let path = ran.stderr.split_whitespace().find(|word| word.starts_with("/tmp/perf-")).unwrap();
        let path = path.trim_end_matches(':');
        std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)).unwrap();
    }
}

#[test]
fn an_earlier_processs_map_is_replaced_and_a_new_one_is_private() {
    let place = Place::new();
    let ran = with_something_at_the_path(&place, "echo old > $path; chmod 644 $path");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let path = ran.stderr.split_whitespace().find(|word| word.starts_with("/tmp/perf-")).unwrap();
    let path = path.trim_end_matches(':');
    assert!(std::fs::read_to_string(path).unwrap().contains(" main\n"));
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    remove_perf_map(&ran.stderr);
}

#[test]
fn options_that_say_nothing_together_are_refused() {
    let place = Place::new();
    let guest = fixture("c-traps.wasm").display().to_string();
    for (options, message) in [
        (&["--format=jitdump", "--jitdump-functions=sampled", "--sampler=off"][..], "leave out --sampler=off"),
        (&["--jitdump-functions=sampled"], "--jitdump-functions is for --format=jitdump"),
        (&["--format=perfmap", "-o", "ending"], "give it one"),
    ] {
        let ran = place.run(options.iter().copied().chain([guest.as_str()]));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{options:?}");
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
    assert!(place.files().is_empty());
}

/// A guest that does not run leaves nothing for perf.
#[test]
fn without_a_run_there_is_no_dump() {
    let place = Place::new();
    place.file("guest.wat", "(module (import \"env\" \"missing\" (func)) (func (export \"_start\")))");
    let ran = place.run(["--format=jitdump", "guest.wat"]);
    assert_eq!(ran.code, Some(126), "{}", ran.stderr);
    assert_eq!(place.files(), ["guest.wat"]);
}

#[test]
fn what_cannot_be_said_of_a_recording_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(["-q", "-o", "x.wlprof", fixture("c-inlined.wasm").to_str().unwrap()]).code, Some(0));
    for format in ["perfmap", "jitdump"] {
        let ran = place.run(["render", "x.wlprof", "--format", format]);
        assert_eq!(ran.code, Some(125));
        assert!(ran.stderr.contains("--format=perf writes a recording's samples"), "{}", ran.stderr);
    }
}
