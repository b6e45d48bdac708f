//! `docs/writing-a-plugin.md`: its plugin is put together and its commands are run, from top to bottom.

use crate::guest::{Place, run};
use crate::library::forget_package;
use crate::page::{Example, examples};
use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn root() -> PathBuf {
    std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/writing-a-plugin.md")).unwrap()
}

/// The page's code blocks that begin with this line.
fn blocks<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    page.split(fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// What `line` says besides numbers, what is drawn, and the details of a check. Numbers may be in the middle of words.
fn gist(line: &str) -> String {
    let line = if line.starts_with("check ") { line.split(" (").next().unwrap() } else { line };
    let line = line.split_whitespace().filter(|word| !word.starts_with('█')).collect::<Vec<_>>().join(" ");
    let mut gist = String::new();
    for c in line.chars() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '#';
        match c.is_ascii_digit() {
            true if gist.ends_with(is_number) => {}
            true => gist.push('#'),
            false if c == '.' && gist.ends_with('#') => {}
            false => gist.push(c),
        }
    }
    gist
}

#[test]
fn the_parts_are_the_plugin() {
    let page = page();
    let plugin = std::fs::read_to_string(root().join("testdata/tiny/tiny_plugin.c")).unwrap();
    assert_eq!(blocks(&page, "```c\n").join("\n"), plugin);
    let guest = std::fs::read_to_string(root().join("testdata/tiny/interpreter.c")).unwrap();
    for block in blocks(&page, "```c guest\n") {
        assert!(guest.contains(block), "testdata/tiny/interpreter.c has no\n{block}");
    }
}

/// One shell runs all, so that `cd` and `export` last. After each command it prints a line that no command does.
#[test]
fn the_commands_print_what_the_page_says() {
    const MARK: &str = "-- next command --";
    let page = page();
    let plugin = blocks(&page, "```c\n").join("\n");
    let place = Place::new();
    let plugin = place.file("plugin.c", plugin);
    let examples = examples(&page);
    assert!(examples.len() >= 18, "{}", examples.len());
    let mut script = "set -e\nexec 2>&1\n".to_owned();
    let mut builds = 0;
    for Example { command, .. } in &examples {
        if command == "make" {
            builds += 1;
            if builds == 2 {
                writeln!(script, "cp '{}' tiny.c", plugin.display()).unwrap();
            }
        }
        writeln!(script, "{command}\necho '{MARK}'").unwrap();
    }
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let variable = |name: &str, default: &str| {
        env::var_os(name)
            .map_or_else(|| Path::new(&env::var_os("HOME").unwrap_or_default()).join(default), PathBuf::from)
    };
    let mut shell = std::process::Command::new("sh");
    shell.arg(place.file("commands.sh", script)).current_dir(root()).stdin(Stdio::null());
    shell.env("CARGO_HOME", variable("CARGO_HOME", ".cargo")).env("RUSTUP_HOME", variable("RUSTUP_HOME", ".rustup"));
    shell.env("XDG_CACHE_HOME", variable("XDG_CACHE_HOME", ".cache")).env("HOME", &home);
    forget_package(&mut shell);
    shell.env_remove("XDG_DATA_HOME").env_remove("WLPROF_PLUGIN_PATH").env_remove("RUST_BACKTRACE");
    let ran = run(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let printed: Vec<&str> = ran.stdout.split(&format!("{MARK}\n")).collect();
    assert_eq!(printed.len(), examples.len() + 1);
    for (Example { command, shown }, printed) in examples.iter().zip(&printed) {
        let printed_gists: Vec<String> = printed.lines().map(gist).collect();
        for line in shown.iter().filter(|line| line.trim() != "…") {
            let expected = gist(&line.replace("~/", &format!("{}/", home.display())));
            assert!(printed_gists.contains(&expected), "{command}\ndoes not print\n{line}\nbut\n{printed}");
        }
    }
    assert!(printed.last().unwrap().is_empty());
}
