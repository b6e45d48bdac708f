//! What is shown while a guest is compiled: on a terminal how many of its functions are, and everywhere how long it took.

use crate::guest::{Place, fixture, output};
use crate::sampled::image;
use crate::top::OnTerminal;
use std::process::Command;
use wlprof_plugin::ModuleView;

const GUEST: &str = "go-work-1.27.wasm";

fn run(place: &Place, options: &[&str]) -> Command {
    let mut command = place.command(["--sampler=off"]);
    command.args(options).arg(fixture(GUEST)).env("XDG_CACHE_HOME", place.path("cache"));
    command
}

/// Wasmtime's lines about functions are counted. Should another release word them otherwise, none would be.
#[test]
fn a_terminal_shows_how_much_of_a_guest_is_compiled_and_whether_it_was_before() {
    let image = image(GUEST);
    let imports = image.function_imports().len() as u32;
    let functions = (imports..).take_while(|&index| image.function_body(index).is_some()).count();
    assert!(functions >= 1000, "{functions}");
    let place = Place::new();
    let written = |options: &[&str]| OnTerminal::run(&place, &run(&place, options)).written();
    let [done, cached] = [
        format!("compiled {functions} functions in "),
        format!("{functions} functions were in Wasmtime's cache of compiled code"),
    ];
    let first = written(&[]);
    assert!(first.contains(&format!(" of {functions} functions")), "it shows how far it is: {first:?}");
    assert!(!first.contains("0/0"), "a bar of nothing: {first:?}");
    assert!(first.contains(&done) && !first.contains(&cached), "{first:?}");
    let second = written(&[]);
    assert!(second.contains(&cached) && !second.contains(&done), "{second:?}");
    let without = written(&["--no-cache"]);
    assert!(without.contains(&done) && !without.contains(&cached), "{without:?}");
    let quiet = written(&["-q"]);
    assert!(!quiet.contains(&cached) && !quiet.contains(&done), "{quiet:?}");
    // On a pipe.
    let ran = output(&mut run(&place, &["--no-cache"]));
    assert!(ran.stderr.matches("functions").count() == 1 && ran.stderr.contains(&done), "{ran:?}");
    assert!(ran.stderr.lines().filter(|line| line.contains("compiling")).count() <= 1, "{ran:?}");
    let ran = output(&mut run(&place, &[]));
    assert!(!ran.stderr.contains("functions"), "{ran:?}");
    let quiet = output(&mut run(&place, &["--no-cache", "-q"]));
    assert!(!quiet.stderr.contains("functions"), "{quiet:?}");
}
