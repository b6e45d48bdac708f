//! Where data lies by a guest's DWARF, compared with what the guest says of itself.

use crate::guest::output;
use crate::sampled::{fixture, image};
use crate::tested::wlprof;
use wlprof_plugin::{Member, ModuleView};

/// The lines that a guest prints.
fn said(name: &str) -> Vec<String> {
    let mut command = wlprof();
    let ran = output(command.args(["-q", "--sampler=off"]).arg(fixture(name)));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout.lines().map(str::to_owned).collect()
}

/// Answers a line as the guest printed it.
fn answer(module: &dyn ModuleView, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |number: Option<i128>| number.map_or("none".to_owned(), |number| number.to_string());
    match words[..] {
        ["variable", name, _] => {
            format!("variable {name} {}", number(module.variable_address(name).map(Into::into)))
        }
        ["member", structure, name, ..] => {
            let Some(Member { offset, size, bits }) = module.member(structure, name) else {
                return format!("member {structure} {name} none");
            };
            let bits = bits.unwrap_or(0..0);
            format!("member {structure} {name} {offset} {size} {} {}", bits.start, bits.len())
        }
        ["type", name, _] => format!("type {name} {}", number(module.type_size(name).map(Into::into))),
        ["enumerator", name, _] => format!("enumerator {name} {}", number(module.enumerator(name).map(Into::into))),
        _ => panic!("{line}"),
    }
}

#[test]
fn names_lead_to_where_the_guest_says_its_data_is() {
    let guests =
        [("c-layout.wasm", 30), ("c-layout-dwarf5.wasm", 30), ("c-layout-O0.wasm", 30), ("cpp-layout.wasm", 5)];
    for (name, lines) in guests {
        let (said, image) = (said(name), image(name));
        assert_eq!(said.len(), lines, "{said:?}");
        let answers: Vec<String> = said.iter().map(|line| answer(&image, line)).collect();
        assert_eq!(answers, said, "{name}");
    }
}

#[test]
fn what_is_not_there_has_no_place() {
    let image = image("c-layout.wasm");
    assert_eq!(image.variable_address("main"), None, "a function");
    assert_eq!(image.variable_address(""), None);
    for (structure, member) in [
        ("object", "count"),
        ("object", "header.kind.x"),
        ("object", ""),
        ("object", "next.next"),
        ("color", "RED"),
        ("none", "next"),
    ] {
        assert_eq!(image.member(structure, member), None, "{structure}.{member}");
    }
    // In two units of what it is stored in.
    assert!(image.member("packed", "first").is_some() && image.member("packed", "second").is_none());
    assert_eq!((image.type_size("none"), image.enumerator("color")), (None, None));
    let without_dwarf = crate::sampled::image("go-bench.wasm");
    assert_eq!((without_dwarf.variable_address("runtime.allgs"), without_dwarf.type_size("int")), (None, None));
}
