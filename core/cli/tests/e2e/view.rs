//! `wlprof view`: what it serves, to whom, and how it ends.

use crate::guest::{Place, Ran, finish, fixture};
use crate::running::{wait_until, with_default_signals};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

const FRONT_END: &str = "https://profiler.firefox.com";

/// A guest whose function has a name that would be a script in a page.
const HOSTILE: &str = "(module (memory (export \"memory\") 1)
    (func $\"<script>alert(1)</script>\" (local i32)
        (loop (br_if 0 (i32.ne (i32.const 300000000) (local.tee 0 (i32.add (i32.const 1) (local.get 0)))))))
    (func (export \"_start\") (call 0)))";

/// A `wlprof view` that serves.
pub(crate) struct Viewing {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What the browser opens.
    opened: String,
    /// What opens the Firefox Profiler.
    firefox: String,
    /// Host and port, and the secret path.
    host: String,
    secret: String,
}

pub(crate) fn view(place: &Place, arguments: &[&str]) -> Viewing {
    let command = place.command(["view", "--no-open"].iter().chain(arguments));
    start_viewing(with_default_signals(&command))
}

fn start_viewing(mut command: Command) -> Viewing {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let [mut opened, mut other] = [(); 2].map(|()| String::new());
    stdout.read_line(&mut opened).unwrap();
    stdout.read_line(&mut other).unwrap();
    if other.is_empty() {
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        panic!("{opened:?} {stderr}");
    }
    let opened = opened.trim_end().to_owned();
    let (base, firefox) = match other.trim_end().strip_prefix("in the Firefox Profiler: ") {
        Some(firefox) => (opened.clone(), firefox.to_owned()),
        None => (other.trim_end().strip_prefix("without the net: ").unwrap().to_owned(), opened.clone()),
    };
    let (host, secret) = base.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')?.split_once('/')).unwrap();
    assert!(host.starts_with("127.0.0.1:") && secret.len() == 32, "{base}");
    let encoded = format!("{base}profile.json").replace(':', "%3A").replace('/', "%2F");
    assert_eq!(firefox, format!("{FRONT_END}/from-url/{encoded}"));
    let (host, secret) = (host.to_owned(), secret.to_owned());
    Viewing { child, stdout, opened, firefox, host, secret }
}

/// Head and body of an answer.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Viewing {
    /// The address of the page at this path.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://{}/{}/{path}", self.host, self.secret)
    }

    fn page(&self, path: &str) -> Answer {
        self.get(&format!("/{}/{path}", self.secret), "null")
    }

    /// Asks as a page of `origin` would.
    fn get(&self, path: &str, origin: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let host = &self.host;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        Answer { head: String::from_utf8(bytes[..end].to_vec()).unwrap(), body: bytes[end + 4..].to_vec() }
    }

    fn profile(&self, origin: &str) -> Answer {
        self.get(&format!("/{}/profile.json", self.secret), origin)
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn end(mut self) -> Ran {
        crate::guest::send_signal(self.child.id(), "INT");
        let ran = finish(self.child, "wlprof view");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "until Ctrl-C\n");
        ran
    }
}

#[test]
fn a_recording_is_served_as_the_profile_that_render_writes() {
    let place = Place::new();
    let guest = fixture("c-traps.wasm").to_str().unwrap().to_owned();
    assert_eq!(place.run(["-q", "-o", "a.wlprof", "-o", "a.json", &guest]).code, Some(0));
    let viewing = view(&place, &["a.wlprof"]);
    let profile = viewing.profile(FRONT_END);
    assert_eq!((profile.status(), profile.header("content-type")), ("200", Some("application/json")));
    assert_eq!(profile.header("access-control-allow-origin"), Some(FRONT_END));
    assert!(profile.body == std::fs::read(place.path("a.json")).unwrap(), "not what the run wrote");
    assert_eq!(viewing.profile("https://evil.example").header("access-control-allow-origin"), None);

    assert_eq!(viewing.opened, viewing.address(""));
    for path in ["/", "/profile.json", "/0123456789abcdef0123456789abcdef/profile.json"] {
        let none = viewing.get(path, FRONT_END);
        assert_eq!(none.status(), "404", "{path}");
        assert!(!none.text().contains(&viewing.secret), "{}", none.text());
    }
    let ran = viewing.end();
    assert_eq!((ran.code, ran.signal, ran.stderr.as_str()), (None, Some(2), ""));
}

#[test]
fn a_firefox_profile_is_served_as_it_is() {
    let place = Place::new();
    let json = br#"{"meta": {"product": "something else"}}"#;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(json).unwrap();
    let gzip = encoder.finish().unwrap();
    for (name, bytes, encoding) in [("p.json", &json[..], None), ("p.json.gz", &gzip, Some("gzip"))] {
        place.file(name, bytes);
        let viewing = view(&place, &[name]);
        let profile = viewing.profile(FRONT_END);
        assert_eq!((profile.status(), profile.header("content-encoding")), ("200", encoding));
        assert_eq!(profile.body, bytes, "{name}");
        assert_eq!(viewing.end().signal, Some(2));
    }
}

#[test]
fn a_recording_has_pages_that_need_nothing_of_the_net() {
    let place = Place::new();
    let guest = fixture("c-traps.wasm").to_str().unwrap().to_owned();
    assert_eq!(place.run(["-q", "-o", "a.wlprof", "-o", "a.svg", &guest]).code, Some(0));
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata");
    let viewing = view(&place, &["--source-dir", sources, "a.wlprof"]);
    for (path, part) in [
        ("", "<iframe src=\"flamegraph.svg\""),
        ("call-tree", "\"work\""),
        ("sources", "c/traps.c</a>"),
        ("source/0", "state ^= state"),
        ("source/0/whole", "#include &lt;stdint.h&gt;"),
        ("table", "work  c/traps.c:"),
    ] {
        let page = viewing.page(path);
        assert_eq!((page.status(), page.header("content-type")), ("200", Some("text/html; charset=utf-8")), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{path}: {policy}");
        assert!(page.text().contains(part) && page.text().contains(&viewing.firefox), "{path}: {}", page.text());
        assert_eq!(page.header("access-control-allow-origin"), None);
        // Nothing is loaded from elsewhere. Where links lead is another matter.
        for loaded in ["src=\"http", "src='", "@import", "url(", "<link"] {
            assert!(!page.text().contains(loaded), "{path}: {loaded}");
        }
    }
    let graph = viewing.page("flamegraph.svg");
    assert_eq!((graph.status(), graph.header("content-type")), ("200", Some("image/svg+xml")));
    assert!(graph.body == std::fs::read(place.path("a.svg")).unwrap(), "not what the run wrote");
    for path in ["source/99999", "source/x", "source/-1", "nothing"] {
        assert!(["400", "404"].contains(&viewing.page(path).status()), "{path}");
    }
    viewing.end();
}

#[test]
fn memory_is_viewed_where_it_was_profiled() {
    let place = Place::new();
    let guest = fixture("c-heap.wasm").to_str().unwrap().to_owned();
    let arguments = ["-q", "--memory", "--memory-rate=1", "-o", "a.wlprof", &guest, "300"];
    assert_eq!(place.run(arguments).code, Some(0));
    let seen = |options: &[&str]| {
        let viewing = view(&place, &[options, &["a.wlprof"]].concat());
        let pages =
            ["flamegraph.svg", "call-tree", "sources", "table"].map(|path| viewing.page(path).text().to_owned());
        let profile = viewing.profile(FRONT_END).body;
        viewing.end();
        (pages, profile)
    };
    let ([graph, calls, sources, table], profile) = seen(&[]);
    assert!(graph.contains("at the peak"), "{graph}");
    assert!(calls.contains("\"is_memory\":true") && calls.contains("\"by_malloc\""), "{calls}");
    assert!(sources.contains("iB</span>") && !sources.contains(" s</span>"), "{sources}");
    assert!(table.contains("at the peak"), "{table}");
    let ([_, calls, sources, _], of_time) = seen(&["--show=time"]);
    assert!(calls.contains("\"is_memory\":false") && !sources.contains("iB</span>"), "{calls} {sources}");
    // The Firefox Profiler is given the time either way.
    assert!(profile == of_time, "another profile");
}

#[test]
fn names_in_a_recording_are_text_in_the_pages() {
    let place = Place::new();
    place.file("hostile.wat", HOSTILE);
    assert_eq!(place.run(["-q", "-o", "a.wlprof", "hostile.wat"]).code, Some(0));
    let viewing = view(&place, &["--frames=merged", "--guest=hostile.wat", "a.wlprof"]);
    let page = viewing.page("table");
    assert!(page.text().contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{}", page.text());
    assert!(!page.text().contains("<script"), "{}", page.text());
    let page = viewing.page("call-tree");
    assert!(page.text().contains("\\u003cscript>alert(1)\\u003c/script>"), "{}", page.text());
    for path in ["", "call-tree", "sources", "table", "flamegraph.svg"] {
        assert!(!viewing.page(path).text().contains("<script>alert"), "{path}");
    }
    let profile: Value = serde_json::from_slice(&viewing.profile(FRONT_END).body).unwrap();
    assert!(profile.to_string().contains("<script>alert(1)</script>"));
    viewing.end();
}

/// Pages are made by another process: one that was killed is not waited for, and what it made is still there.
#[test]
fn a_process_that_dies_is_reported_on_the_pages_that_it_did_not_make() {
    let place = Place::new();
    place.file("hostile.wat", HOSTILE);
    assert_eq!(place.run(["-q", "-o", "a.wlprof", "hostile.wat"]).code, Some(0));
    let viewing = view(&place, &["a.wlprof"]);
    let table = viewing.page("table");
    let children = format!("/proc/{0}/task/{0}/children", viewing.child.id());
    let children = std::fs::read_to_string(children).unwrap();
    crate::guest::send_signal(children.trim().parse().unwrap(), "KILL");
    let lost = viewing.page("flamegraph.svg");
    assert_eq!(lost.status(), "500");
    assert!(lost.text().contains("cannot be rendered") && lost.text().contains("it was killed"), "{}", lost.text());
    assert_eq!(viewing.page("table").text(), table.text());
    viewing.end();
}

/// Any user of a machine can read the arguments of its processes.
#[test]
fn the_browser_is_led_to_the_profile_by_a_file_that_nobody_else_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.file("p.json", "{}");
    // Stands in for the program that opens browsers.
    let opener = place.file("xdg-open", "#!/bin/sh\nprintf '%s\\n' \"$@\" > opening\nmv opening opened\n");
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::join_paths([place.path("."), "/usr/bin".into(), "/bin".into()]).unwrap();
    for (variable, is_there) in [("XDG_RUNTIME_DIR", true), ("TMPDIR", true), ("XDG_RUNTIME_DIR", false)] {
        let folder = place.path("private");
        std::fs::create_dir_all(&folder).unwrap();
        let _ = std::fs::remove_file(place.path("opened"));
        let command = place.command(["view", "p.json"]);
        let mut command = with_default_signals(&command);
        command.env("PATH", &path).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", &folder);
        command.env(variable, if is_there { folder.clone() } else { place.path("nowhere") });
        let viewing = start_viewing(command);
        wait_until("the browser is started", || place.path("opened").exists());
        let arguments = std::fs::read_to_string(place.path("opened")).unwrap();
        assert!(!arguments.contains(&viewing.secret), "{arguments}");
        let page = std::path::PathBuf::from(arguments.trim_end());
        assert_eq!(page.parent().unwrap(), folder, "{arguments}");
        assert_eq!(page.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&page).unwrap();
        let url = &viewing.opened;
        assert!(text.contains(&format!("http-equiv=\"refresh\" content=\"0; url={url}\"")), "{text}");
        viewing.end();
        assert!(!page.exists(), "{}", page.display());
    }
}

#[test]
fn what_is_no_profile_is_told_once() {
    let place = Place::new();
    place.file("text", "fn main() {}\n");
    place.file("cut.wlprof", b"wlprof\r\n");
    let cases = [
        ("text", "text: neither a recording of wlprof's (.wlprof) nor a profile for the Firefox Profiler (.json, "),
        ("cut.wlprof", "cut.wlprof: "),
        ("none", "none: No such file"),
    ];
    for (name, message) in cases {
        let ran = place.run(["view", "--no-open", name]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("wlprof: {message}")), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}
