//! Guests that try to have wlprof write elsewhere for them.

use crate::guest::{Place, Ran};
use wlprof::export::EXPORTERS;

/// A guest that makes links in its first folder, to places outside, and works for a while after that. `links` are names and
/// what they lead to.
fn planting(links: &[(&str, &str)]) -> String {
    let mut data = String::new();
    let mut calls = String::new();
    let mut at = 1024;
    for (name, target) in links {
        for (text, label) in [(target, "to"), (name, "name")] {
            data.push_str(&format!("(data (i32.const {at}) \"{text}\") ;; {label}\n"));
            at += text.len();
        }
        let (to, from) = (at - name.len() - target.len(), at - name.len());
        let (to_length, length) = (target.len(), name.len());
        calls.push_str(&format!(
            "(drop (call $unlink (i32.const 3) (i32.const {from}) (i32.const {length})))
             (local.set $failed (i32.or (local.get $failed) (call $link (i32.const {to}) (i32.const {to_length}) \
             (i32.const 3) (i32.const {from}) (i32.const {length}))))\n"
        ));
    }
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "path_symlink" (func $link (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    {data}
    (func $work (local $left i32)
        (local.set $left (i32.const 100000000))
        (loop $again
            (local.set $left (i32.sub (local.get $left) (i32.const 1)))
            (br_if $again (local.get $left))))
    (func (export "_start") (local $failed i32)
        {calls}
        (call $work)
        (if (local.get $failed) (then (call $exit (i32.const 9))))))"#
    )
}

/// A folder for the guest with a folder and a file outside it.
fn place() -> (Place, String) {
    let place = Place::new();
    std::fs::create_dir(place.path("box")).unwrap();
    place.file("victim", "precious");
    let options = place.path("box").to_str().unwrap().to_owned();
    (place, options)
}

fn run(place: &Place, folder: &str, arguments: &[&str]) -> Ran {
    let mut command = place.command(arguments);
    command.current_dir(folder).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    crate::guest::run(&mut command)
}

fn assert_untouched(place: &Place) {
    assert_eq!(std::fs::read_to_string(place.path("victim")).unwrap(), "precious");
    assert_eq!(place.files(), ["box", "guest.wat", "victim"]);
}

#[test]
fn links_in_place_of_outputs_lead_nowhere() {
    let (place, folder) = place();
    let profiles = EXPORTERS.iter().map(|exporter| format!("p.{}", exporter.extensions()[0]));
    let companions = EXPORTERS.iter().zip(profiles.clone());
    let companions = companions.filter_map(|(exporter, name)| Some(name + exporter.companion_ending()?));
    let outputs: Vec<String> = profiles.clone().chain(companions).collect();
    let links: Vec<_> = outputs.iter().map(|name| (name.as_str(), "../victim")).collect();
    place.file("guest.wat", planting(&links));
    let names: Vec<String> = profiles.map(|name| format!("-o{name}")).collect();
    let mut arguments: Vec<&str> = names.iter().map(String::as_str).collect();
    arguments.extend(["--dir", ".", "../guest.wat"]);
    let ran = run(&place, &folder, &arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_untouched(&place);
    for name in outputs {
        let found = place.path("box").join(&name);
        assert!(found.is_file() && !found.is_symlink(), "{name}");
    }
    assert!(std::fs::read_to_string(place.path("box").join("p.folded")).unwrap().contains("work"));
}

#[test]
fn links_in_place_of_jitdumps_lead_nowhere() {
    let (place, folder) = place();
    // The guest does not know the process's number; it tries some.
    place.file("guest.wat", planting(&[("jit-1.dump", "../victim"), ("profile.json.1.tmp", "../victim")]));
    let arguments = ["--format=jitdump", "--jitdump-functions=sampled", "-op.json", "--dir", ".", "../guest.wat"];
    let ran = run(&place, &folder, &arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_untouched(&place);
}

#[test]
fn a_folder_that_is_swapped_for_a_link_leads_nowhere() {
    let (place, folder) = place();
    std::fs::create_dir(place.path("box/inner")).unwrap();
    std::fs::create_dir(place.path("outside")).unwrap();
    // `inner` cannot be unlinked as a file, but renamed: what was `inner` then is a link.
    let guest = planting(&[("inner", "../outside")]).replace(
        "(memory (export",
        r#"(import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
    (data (i32.const 512) "innermoved")
    (memory (export"#,
    );
    let guest = guest.replace(
        "(drop (call $unlink",
        "(drop (call $rename (i32.const 3) (i32.const 512) (i32.const 5) (i32.const 3) (i32.const 517) (i32.const 5)))
        (drop (call $unlink",
    );
    place.file("guest.wat", guest);
    let ran = run(&place, &folder, &["-oinner/p.json", "-oinner/p.wlprof", "--dir", ".", "../guest.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(std::fs::read_dir(place.path("outside")).unwrap().next().is_none(), "it was written outside");
    for name in ["p.json", "p.wlprof"] {
        assert!(place.path("box/moved").join(name).is_file(), "{name}");
    }
}

#[test]
fn a_guest_that_takes_the_recording_away_does_not_have_the_profile() {
    let (place, folder) = place();
    place.file("guest.wat", planting(&[("p.wlprof", "nothing")]));
    let ran = run(&place, &folder, &["-op.wlprof", "--dir", ".", "../guest.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let bytes = std::fs::read(place.path("box/p.wlprof")).unwrap();
    let recording = wlprof::recording::file::read(&bytes).unwrap();
    assert!(crate::guest::was_seen(&recording, "work"), "{ran:?}");
}

#[test]
fn an_older_profile_is_replaced_with_a_word() {
    let (place, folder) = place();
    place.file("guest.wat", planting(&[]));
    for (round, replaced) in [(1, false), (2, true)] {
        let ran = run(&place, &folder, &["-op.json", "../guest.wat"]);
        let is_said = ran.stderr.contains("wrote p.json (in place of an older one): ");
        assert_eq!((ran.code, is_said), (Some(0), replaced), "round {round}: {ran:?}");
    }
}
