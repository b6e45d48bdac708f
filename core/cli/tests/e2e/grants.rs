//! What a guest is given that the user has not named: an interpreter its library, and nothing else.

use crate::guest::{Place, Ran};
use crate::library;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Exits with what WASI says of the first folder that it was given: 0, or 8 (`badf`) if there is none. A function of it has
/// the name that CPython is known by.
const GUEST: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_prestat_get" (func $first_folder (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func $_PyEval_EvalFrameDefault)
    (func (export "_start")
        (call $_PyEval_EvalFrameDefault)
        (call $exit (call $first_folder (i32.const 3) (i32.const 0)))))"#;

const GIVEN: Option<i32> = Some(0);
const NOT_GIVEN: Option<i32> = Some(8);

/// A folder with the guest, and with a plugin whose language has a library: `/usr/books` with `index` or `shelf/book`.
fn place() -> (Place, PathBuf) {
    let place = Place::new();
    place.file("app.wat", GUEST);
    let plugin = library::from_c("plugins/with_library.c", place.path("reader.so"), &[]);
    (place, plugin)
}

fn run(place: &Place, plugin: &std::path::Path, options: &[&str], guest: &str) -> Ran {
    place.run([&["--plugin", plugin.to_str().unwrap(), "-q", "-o", "x.folded"], options, &[guest]].concat())
}

/// What is said of the folder `app-lib` of `place`.
fn note(place: &Place, of_it: &str) -> String {
    format!("note: {}/app-lib {of_it}\n", place.path(".").canonicalize().unwrap().display())
}

#[test]
fn a_guest_with_an_interpreters_name_gets_nothing() {
    let place = Place::new();
    place.file("app.wat", GUEST);
    symlink("/", place.path("app-lib")).unwrap();
    for option in ["--lang=auto", "--lang=native", "--sampler=off", "--frames=native", "--lang=python"] {
        let ran = place.run([option, "-q", "-o", "x.folded", "app.wat"]);
        // It is no Python that can be walked.
        let expected = [NOT_GIVEN, Some(126)];
        assert!(expected[..1 + usize::from(option == "--lang=python")].contains(&ran.code), "{option}: {ran:?}");
        assert!(!ran.stderr.contains("app-lib"), "{option}: {ran:?}");
    }
}

#[test]
fn a_library_is_given_to_a_guest_that_is_walked_or_named() {
    let (place, plugin) = place();
    std::fs::create_dir_all(place.path("app-lib/shelf")).unwrap();
    place.file("app-lib/shelf/book", "");
    let said = note(&place, "is the guest's /usr/books, read-only");
    for options in
        [&[][..], &["--lang=reader"], &["--lang=reader", "--sampler=off"], &["--lang=reader", "--frames=native"]]
    {
        let ran = run(&place, &plugin, options, "app.wat");
        assert_eq!(ran.code, GIVEN, "{options:?}: {ran:?}");
        assert!(ran.stderr.contains(&said), "{options:?}: {ran:?}");
    }
    for option in ["--lang=native", "--frames=native", "--sampler=off"] {
        let ran = run(&place, &plugin, &[option], "app.wat");
        assert_eq!(ran.code, NOT_GIVEN, "{option}: {ran:?}");
        assert!(!ran.stderr.contains("app-lib"), "{option}: {ran:?}");
    }
    // What the user gives in its place.
    let ran = run(&place, &plugin, &["--dir", ".::/usr/books"], "app.wat");
    assert!(ran.code == GIVEN && !ran.stderr.contains("app-lib"), "{ran:?}");
}

#[test]
fn the_library_lies_where_the_guest_itself_does() {
    let (place, plugin) = place();
    std::fs::create_dir(place.path("app-lib")).unwrap();
    place.file("app-lib/index", "");
    let elsewhere = Place::new();
    symlink(place.path("app.wat"), elsewhere.path("other.wat")).unwrap();
    std::fs::create_dir(elsewhere.path("other-lib")).unwrap();
    elsewhere.file("other-lib/index", "");
    let ran = run(&elsewhere, &plugin, &[], "other.wat");
    assert_eq!(ran.code, GIVEN, "{ran:?}");
    assert!(ran.stderr.contains(&note(&place, "is the guest's /usr/books, read-only")), "{ran:?}");
}

#[test]
fn what_is_not_plainly_the_library_is_not_given() {
    let (place, plugin) = place();
    let refused = |reason: &str| {
        let ran = run(&place, &plugin, &["--lang=reader"], "app.wat");
        assert_eq!(ran.code, NOT_GIVEN, "{ran:?}");
        let folder = place.path("app-lib").parent().unwrap().canonicalize().unwrap().join("app-lib");
        let said = format!(
            "is not given to the guest as its /usr/books: {reason}; --dir {}::/usr/books gives it",
            folder.display()
        );
        assert!(ran.stderr.contains(&note(&place, &said)), "{ran:?}");
    };
    std::fs::create_dir(place.path("books")).unwrap();
    place.file("books/index", "");
    symlink("books", place.path("app-lib")).unwrap();
    refused("it is a link");
    std::fs::remove_file(place.path("app-lib")).unwrap();
    std::fs::create_dir_all(place.path("app-lib/shelf/book")).unwrap();
    refused("it has none of index, shelf/book");
    // The user's word is enough.
    symlink("/", place.path("link")).unwrap();
    let ran = run(&place, &plugin, &["--dir", "link::/usr/books"], "app.wat");
    assert_eq!(ran.code, GIVEN, "{ran:?}");
    std::fs::remove_dir_all(place.path("app-lib")).unwrap();
    place.file("app-lib", "no folder");
    let ran = run(&place, &plugin, &["--lang=reader"], "app.wat");
    assert!(ran.code == NOT_GIVEN && !ran.stderr.contains("app-lib"), "{ran:?}");
}

/// As the test fixtures lie: the guest's file is called otherwise where it really is, and both are links of one folder.
#[test]
fn a_link_to_the_library_is_followed_beside_the_link_that_the_user_names() {
    let (place, plugin) = place();
    let links = Place::new();
    symlink(place.path("app.wat"), links.path("reader-1.wat")).unwrap();
    std::fs::create_dir(place.path("books")).unwrap();
    symlink(place.path("books"), links.path("reader-1-lib")).unwrap();
    let ran = run(&links, &plugin, &[], "reader-1.wat");
    assert_eq!(ran.code, NOT_GIVEN, "a folder without the library's files: {ran:?}");
    place.file("books/index", "");
    let ran = run(&links, &plugin, &[], "reader-1.wat");
    assert_eq!(ran.code, GIVEN, "{ran:?}");
    let books = place.path("books").canonicalize().unwrap();
    let said = format!("note: {} is the guest's /usr/books, read-only\n", books.display());
    assert!(ran.stderr.contains(&said) && !ran.stderr.contains("--dir"), "{ran:?}");
}

#[test]
fn a_guest_that_fails_without_its_library_is_answered_with_the_option() {
    let (place, plugin) = place();
    let hint = "note: the guest was given no folder as its /usr/books; if its library is missing, --dir FOLDER::/usr/books gives it\n";
    let ran = run(&place, &plugin, &[], "app.wat");
    assert_eq!((ran.code, ran.stderr.matches(hint).count()), (NOT_GIVEN, 1), "{ran:?}");
    let given = run(&place, &plugin, &["--dir=.::/usr/books"], "app.wat");
    assert!(given.code == GIVEN && !given.stderr.contains("--dir"), "{given:?}");
    let native = run(&place, &plugin, &["--lang=native"], "app.wat");
    assert!(native.code == NOT_GIVEN && !native.stderr.contains("--dir"), "{native:?}");
}
