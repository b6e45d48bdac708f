//! `--graph x.svg`: what Graphviz draws is what the recording says, whatever the guest calls its functions.

use crate::bad_modules::HOSTILE_NAME;
use crate::guest::{Place, Ran, fixture, run, tool};
use crate::world;
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Stdio;
use wlprof::recording::{Totals, View};

/// Runs wlprof where programs are looked for in these folders alone.
fn with_programs_of(folders: &OsStr, place: &Place, arguments: &[&str]) -> Ran {
    let mut command = place.command(arguments);
    run(command.env("PATH", folders).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn drawn(place: &Place, arguments: &[&str]) -> String {
    let mut folders = vec![tool("dot").parent().unwrap().to_owned()];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let ran = with_programs_of(&std::env::join_paths(folders).unwrap(), place, arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    std::fs::read_to_string(place.path("calls.svg")).unwrap()
}

fn parsed(svg: &str) -> Document<'_> {
    Document::parse_with_options(svg, ParsingOptions { allow_dtd: true, ..Default::default() }).unwrap()
}

/// The texts of each thing of that class, its title first.
fn texts<'a>(document: &'a Document<'_>, class: &str) -> Vec<Vec<&'a str>> {
    let is_text = |node: &Node<'_, '_>| node.has_tag_name("title") || node.has_tag_name("text");
    let things = document.descendants().filter(|node| node.attribute("class") == Some(class));
    things.map(|thing| thing.descendants().filter(is_text).filter_map(|node| node.text()).collect()).collect()
}

#[test]
fn each_function_and_call_is_drawn_with_its_time() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm");
    let svg = drawn(&place, &["-q", "--graph", "calls.svg", "-o", "run.wlprof", guest.to_str().unwrap()]);
    let document = parsed(&svg);
    let nodes = texts(&document, "node");
    let recording = place.recording("run.wlprof").view(View::Guest);
    let totals = Totals::of(&recording);
    let all_ns: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let ms = |ns: u64| format!("{:.1} ms ({:.1} %)", ns as f64 / 1e6, 100.0 * ns as f64 / all_ns as f64);
    let mut drawn = 0;
    for total in totals.functions.iter().filter(|total| total.total_time.ns * 50 > all_ns) {
        let name = &recording.functions[total.function as usize].name;
        let times = [format!("self {}", ms(total.self_time.ns)), format!("total {}", ms(total.total_time.ns))];
        let is_it = |texts: &&Vec<&str>| texts[1] == name && times.iter().all(|time| texts.contains(&time.as_str()));
        assert!(nodes.iter().any(|texts| is_it(&texts)), "{name}, {times:?}: {nodes:?}");
        drawn += 1;
    }
    assert!(drawn >= 4, "{drawn}");
    let ids: BTreeSet<&str> = nodes.iter().map(|texts| texts[0]).collect();
    let edges = texts(&document, "edge");
    assert!(!edges.is_empty());
    for edge in &edges {
        let (caller, callee) = edge[0].split_once("->").unwrap();
        assert!(ids.contains(caller) && ids.contains(callee), "{edge:?}: {ids:?}");
    }

    let rendered = drawn_again(&place);
    assert_eq!(rendered, svg, "the same recording is the same picture");
}

fn drawn_again(place: &Place) -> String {
    std::fs::remove_file(place.path("calls.svg")).unwrap();
    drawn(place, &["render", "-q", "--graph", "calls.svg", "run.wlprof"])
}

#[test]
fn hostile_names_are_texts_of_the_picture() {
    for (name, shown) in [
        (HOSTILE_NAME, "[31mred"),
        ("\\\"]; x [label=\\\"forged", "\"]; x [label=\"forged"),
        ("<script>alert(1)</script>\\\\G&amp;", "<script>alert(1)</script>\\G&amp;"),
    ] {
        let place = Place::new();
        place.file("guest.wat", world::with_function_named(name));
        let svg = drawn(&place, &["-q", "--graph", "calls.svg", "guest.wat"]);
        assert!(svg.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{svg:?}");
        let document = parsed(&svg);
        let elements: BTreeSet<_> = document.descendants().map(|node| node.tag_name().name()).collect();
        let expected = ["", "a", "ellipse", "g", "path", "polygon", "svg", "text", "title"];
        assert!(elements.iter().all(|element| expected.contains(element)), "{elements:?}");
        let nodes = texts(&document, "node");
        assert!(nodes.iter().any(|texts| texts[1].contains(shown)), "{shown}: {nodes:?}");
        assert!(nodes.iter().all(|texts| texts[0].starts_with('f')), "{nodes:?}");
    }
}

#[test]
fn without_graphviz_the_guest_is_not_run() {
    let place = Place::new();
    place.file("guest.wat", world::with_function_named("work"));
    let ran = with_programs_of(OsStr::new("/nonexistent"), &place, &["--graph", "calls.svg", "guest.wat"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("apt-get install graphviz"), "{ran:?}");
    assert_eq!(place.files(), ["guest.wat"]);
    let other = with_programs_of(OsStr::new("/nonexistent"), &place, &["-q", "--graph", "calls.dot", "guest.wat"]);
    assert_eq!(
        (other.code, place.files().as_slice()),
        (Some(0), ["calls.dot", "guest.wat"].map(str::to_owned).as_slice())
    );
    let wrong = place.run(["--graph", "calls.json", "guest.wat"]);
    assert!(wrong.code == Some(125) && wrong.stderr.contains("name a .svg or .dot file"), "{wrong:?}");
}
