//! `wlprof serve`: answers as `wasmtime serve` does, each request's samples are its own, and it ends when it is told to.

use crate::guest::{Place, fixture, send_signal, tool};
use crate::http;
use crate::pprof::{self, Row};
use crate::running::{SAME_PRESS, Watchdog, wait_until, with_default_signals};
use crate::sampled::Shares;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wlprof::recording::{HeapPart, HeapSite, Recording, Thread};

/// A port that the system chooses.
const ADDRESS: &str = "--addr=127.0.0.1:0";

/// A server that runs.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// Another one that it has told of before, if it has.
    pub(crate) other_address: Option<SocketAddr>,
    /// What it has said so far.
    said: Arc<Mutex<String>>,
    /// Reads what it says.
    reader: JoinHandle<()>,
}

impl Server {
    /// Starts `command`, which says on standard error where it serves.
    fn start(command: &Command) -> Self {
        let mut child = with_default_signals(command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::of(&child);
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let mut other_address = None;
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it serves nowhere: {said}");
            said.push_str(&line);
            let found = line.find("127.0.0.1:").map(|start| line[start..].split(['/', ' ', '\n']).next().unwrap());
            let Some(found) = found.and_then(|found| found.parse().ok()) else { continue };
            if line.to_ascii_lowercase().starts_with("serving") {
                break found;
            }
            other_address = Some(found);
        };
        assert!(!watchdog.has_bitten(), "{command:?} does not begin");
        let said = Arc::new(Mutex::new(said));
        let heard = said.clone();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 0 {
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { child, address, other_address, said, reader }
    }

    pub(crate) fn of_wlprof(place: &Place, options: &[&str], guest: &str) -> Self {
        let options: Vec<&str> = ["-o", "p.wlprof"].iter().chain(options).copied().collect();
        Self::of_wlprof_as_it_is(place, &options, guest)
    }

    pub(crate) fn of_wlprof_as_it_is(place: &Place, options: &[&str], guest: &str) -> Self {
        let guest = fixture(guest);
        let first = ["serve", ADDRESS].iter().chain(options).copied();
        Self::start(&place.command(first.chain([guest.to_str().unwrap()])))
    }

    fn of_wasmtime(options: &[&str], guest: &str) -> Self {
        let mut command = Command::new(tool("wasmtime"));
        command.args(["serve", ADDRESS]).args(options).arg(fixture(guest)).env_remove("RUST_BACKTRACE");
        Self::start(&command)
    }

    /// Waits for its end, and gives its exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let watchdog = Watchdog::of(&self.child);
        let status = self.child.wait().unwrap();
        assert!(!watchdog.has_bitten(), "it hung");
        self.reader.join().unwrap();
        let said = std::mem::take(&mut *self.said.lock().unwrap());
        assert!(!said.contains("panicked"), "{said}");
        (status.code(), said)
    }

    /// Waits until it has used so much CPU time.
    pub(crate) fn uses_cpu(&self, at_least: Duration) {
        let watchdog = Watchdog::of(&self.child);
        let begin = self.cpu_time();
        // A process that has ended, or was, uses none.
        while self.cpu_time().zip(begin).is_some_and(|(now, begin)| now < begin + at_least) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(begin.is_some() && !watchdog.has_bitten(), "it does nothing");
    }

    /// What it has used so far, if it runs.
    fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // In hundredths of a second, whatever the kernel counts in.
        let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        (fields[0] != "Z").then_some(Duration::from_millis(10 * ticks))
    }

    pub(crate) fn interrupt(self) -> (Option<i32>, String) {
        send_signal(self.child.id(), "INT");
        self.end()
    }

    /// Breaks off the requests that have begun: by two presses of Ctrl-C.
    pub(crate) fn break_off(self) {
        send_signal(self.child.id(), "INT");
        wait_until("it has taken the first", || {
            let said = self.said.lock().unwrap();
            assert!(self.cpu_time().is_some(), "it has ended: {said}");
            said.contains("once more breaks them off")
        });
        std::thread::sleep(SAME_PRESS);
        let (code, said) = self.interrupt();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// An answer: its status, its headers but the time, its body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: BTreeSet<String>,
    body: String,
}

/// Asks for a page on a connection of its own.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    ask_saying(address, method, path, "nothing")
}

/// The same, with that in a header.
fn ask_saying(address: SocketAddr, method: &str, path: &str, said: &str) -> Answer {
    let mut stream = begin_to_ask(address, method, path);
    write!(stream, "X-Said: {said}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeSet<String> =
        lines.map(str::to_ascii_lowercase).filter(|line| !line.starts_with("date:")).collect();
    let body = if headers.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    Answer { status, headers, body }
}

/// Sends all of a request but the end of its head.
pub(crate) fn begin_to_ask(address: SocketAddr, method: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n").unwrap();
    stream
}

/// The contents of a body in chunks.
fn unchunked(mut body: &str) -> String {
    let mut contents = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return contents;
        }
        contents.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

/// How often there was an answer, by path, status and body.
type Answers = BTreeMap<(String, u16, String), usize>;

/// Asks `count` times, `clients` at a time, and gives the answers.
fn ask_often(address: SocketAddr, paths: &[&str], count: usize, clients: usize) -> Answers {
    let next = AtomicUsize::new(0);
    let client = || {
        let mut answers = Answers::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return answers;
            }
            let path = paths[number % paths.len()];
            let Answer { status, body, .. } = ask(address, "GET", path);
            *answers.entry((path.to_owned(), status, body)).or_default() += 1;
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let mut all = Answers::new();
        for answers in clients.into_iter().map(|client| client.join().unwrap()) {
            for (answer, count) in answers {
                *all.entry(answer).or_default() += count;
            }
        }
        all
    })
}

/// The functions of each sample of a thread in wasm, root first.
pub(crate) fn stacks<'r>(recording: &'r Recording, thread: &'r Thread) -> impl Iterator<Item = Vec<&'r str>> {
    thread.samples.iter().map(|sample| {
        let lines = recording.lines_of(sample.stack);
        let mut names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
        names.reverse();
        names
    })
}

#[test]
fn answers_are_those_of_wasmtime_serve() {
    for (guest, options, has_trap) in [
        ("handler-c.wasm", &[][..], true),
        ("handler-js.wasm", &["-Scli"], false),
        ("handler-python-3.12.wasm", &["-Scli"], false),
        ("handler-python-3.14.wasm", &["-Scli"], false),
    ] {
        let place = Place::new();
        let [theirs, ours] = [Server::of_wasmtime(options, guest), Server::of_wlprof(&place, options, guest)];
        let mut asked = vec![("GET", "/work/3"), ("POST", "/work/1?x=1"), ("GET", "/")];
        // Where nobody wants the body, the Python program fails when it writes that, or has written it before.
        asked.extend(has_trap.then_some(("HEAD", "/work/2")));
        for (method, path) in asked {
            let [their, our] = [&theirs, &ours].map(|server| ask(server.address, method, path));
            assert_eq!(their, our, "{guest}: {method} {path}");
        }
        if has_trap {
            let [their, our] = [&theirs, &ours].map(|server| ask(server.address, "GET", "/trap"));
            assert_eq!((their.status, our.status), (500, 500));
            // The next one is not harmed.
            assert_eq!(ask(ours.address, "GET", "/work/1").status, 200);
        }
        theirs.interrupt();
        let (code, said) = ours.interrupt();
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said.contains("wasm trap"), has_trap, "{said}");
        let requests = place.recording("p.wlprof").meta.requests;
        let counts: BTreeMap<_, _> =
            requests.iter().map(|total| ((&*total.request, total.status), total.count)).collect();
        let expected = [(("GET /", 404), 1), (("GET /work/*", 200), 1), (("POST /work/*", 200), 1)];
        let mut expected = BTreeMap::from(expected);
        if has_trap {
            expected.insert(("GET /trap", 500), 1);
            expected.insert(("HEAD /work/*", 200), 1);
            expected.insert(("GET /work/*", 200), 2);
        }
        assert_eq!(counts, expected, "{guest}");
    }
}

#[test]
fn samples_are_of_the_requests_that_they_were_taken_in() {
    for (guest, options, working) in [
        ("handler-c.wasm", &[][..], "one_round"),
        ("handler-python-3.14.wasm", &["-Scli"], "one_round.<locals>.<genexpr>"),
    ] {
        let place = Place::new();
        let count = 600;
        let requests = format!("--requests={count}");
        let options: Vec<&str> = options.iter().copied().chain(["--rate=1000", &requests]).collect();
        let server = Server::of_wlprof(&place, &options, guest);
        let rounds = if guest.contains("python") { "/work/40" } else { "/work/4000" };
        let answers = ask_often(server.address, &[rounds, "/elsewhere", rounds], count, 32);
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        let by_status: Vec<(u16, usize)> = answers.iter().map(|((_, status, _), count)| (*status, *count)).collect();
        assert_eq!(by_status, [(404, count / 3), (200, 2 * count / 3)], "{answers:?}");

        let recording = place.recording("p.wlprof");
        // One for each kind, however many requests there were, and what is of none: of what came before a request.
        let names: BTreeSet<&str> = recording.stores.iter().map(|store| &*store.name).collect();
        assert!(recording.stores.len() == names.len() && names.len() <= 3, "{names:?}");
        let mut working_ns = 0;
        for thread in &recording.threads {
            let store = &recording.stores[thread.store as usize];
            let labels: BTreeMap<&str, &str> = store.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let works = stacks(&recording, thread).filter(|stack| stack.contains(&working)).count();
            match (labels.get("request"), labels.get("status")) {
                (Some(&"GET /work/*"), Some(&"200")) => working_ns += works,
                other => assert_eq!(works, 0, "{other:?}"),
            }
        }
        assert!(working_ns > 200, "{working_ns}");
        let table = said.lines().find(|line| line.trim_start().starts_with("400 ")).unwrap_or_else(|| panic!("{said}"));
        assert!(table.ends_with("GET /work/* 200"), "{table}");
        // Of those that broke off in host code the language is not known; its stacks are whole otherwise.
        let truncated: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
        assert!(truncated * 20 <= recording.ticks.sampled, "{:?} of {}", recording.truncated, recording.ticks.sampled);
    }
}

/// Requests of WASI 0.3 are tasks of one store, which wait and go on in turns.
#[test]
fn tasks_of_one_store_are_answered_and_sampled_each_for_itself() {
    let (guest, paths, count) = ("component-python-async.wasm", ["/alpha/3", "/beta/4", "/"], 120);
    let place = Place::new();
    let several = "--max-instance-concurrent-reuse-count=8";
    let theirs = Server::of_wasmtime(&["-Scli", several], guest);
    let expected = ask_often(theirs.address, &paths, count, 8);
    theirs.interrupt();
    let requests = format!("--requests={count}");
    let server = Server::of_wlprof(&place, &["-Scli", several, "--rate=5000", "--max-overhead=100", &requests], guest);
    let answers = ask_often(server.address, &paths, count, 8);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(answers, expected);
    assert_eq!(answers.values().copied().collect::<Vec<_>>(), [count / 3; 3], "{answers:?}");

    let recording = place.recording("p.wlprof");
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut shared = 0;
    for thread in &recording.threads {
        let labels = &recording.stores[thread.store as usize].labels;
        let is_shared = labels.iter().any(|(name, value)| (&**name, &**value) == ("request", "several"));
        for stack in stacks(&recording, thread) {
            for (task, other) in [("alpha", "beta"), ("beta", "alpha")] {
                let works_in = |task: &str| stack.iter().any(|name| name.strip_prefix("in_") == Some(task));
                if works_in(task) {
                    let (is_its, is_of_other) = (stack.contains(&task), stack.contains(&other) || works_in(other));
                    assert!(is_its && !is_of_other && stack.contains(&"turns"), "{stack:?}");
                    *seen.entry(task).or_default() += 1;
                    shared += usize::from(is_shared);
                }
            }
        }
    }
    println!("{seen:?}, {shared} in stores of several; {:?} of {}", recording.truncated, recording.ticks.sampled);
    assert!(seen.len() == 2 && seen.values().all(|count| *count > 20), "{seen:?}");
    assert!(shared > 20, "{shared} of {seen:?}");
    let truncated: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
    assert!(truncated * 10 <= recording.ticks.sampled, "{:?} of {}", recording.truncated, recording.ticks.sampled);
}

#[test]
fn the_last_request_that_is_wanted_is_answered_whole() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--requests=1"], "handler-c.wasm");
    let answer = ask(server.address, "GET", "/work/20000");
    assert_eq!((answer.status, &*answer.body), (200, "210207405\n"));
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.recording("p.wlprof").meta.requests.len(), 1);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let place = Place::new();
    let [module, command, handler] =
        ["c-calls.wasm", "component-c-calls.wasm", "handler-c.wasm"].map(|guest| fixture(guest).display().to_string());
    let python = fixture("handler-python-3.14.wasm").display().to_string();
    let cases: [(&[&str], i32, &str); 8] = [
        (&[&module], 126, "core module"),
        (&[&command], 126, "no `wasi:http` handler"),
        (&["-Scli", &command], 126, "no `wasi:http` handler"),
        (&[&python], 126, "-S cli"),
        (&["--clock=wall", &handler], 125, "--clock=wall"),
        (&["--header=x", &handler], 125, "NAME: VALUE"),
        (&["--format=perfmap", &handler], 125, "format"),
        (&[&handler, "argument"], 125, "arguments"),
    ];
    for (arguments, code, told) in cases {
        let ran = place.run(["serve", "-q", ADDRESS].iter().chain(arguments).copied());
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(place.files(), Vec::<String>::new());
    let server = Server::of_wlprof(&place, &[], "handler-c.wasm");
    let taken = format!("--addr={}", server.address);
    let ran = place.run(["serve", "-q", &taken, &handler]);
    assert!(ran.code == Some(125) && ran.stderr.contains(&taken["--addr=".len()..]), "{}", ran.stderr);
    server.interrupt();
}

#[test]
fn a_quarter_of_each_request_is_a_quarter_where_requests_take_a_period() {
    /// How far it may be off by itself, in points: what a request does first takes more time, since the processor knows nothing of it yet.
    const POINTS: f64 = 1.0;
    let place = Place::new();
    let count = 2000;
    let server = Server::of_wlprof(&place, &["--rate=1000", &format!("--requests={count}")], "handler-c.wasm");
    // They take some milliseconds or less, by the machine's speed.
    let paths = ["/quarters/50", "/quarters/140", "/quarters/400"];
    ask_often(server.address, &paths, count, 1);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    let recording = place.recording("p.wlprof");
    let halves = recording.samples().filter_map(|sample| {
        let mut names = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        Some((names.find(|name| ["three_quarters", "a_quarter"].contains(name))?, sample.period_ns))
    });
    Shares::of(halves).near("a_quarter", 25.0, POINTS).unwrap();
}

#[test]
fn a_request_that_never_ends_costs_no_profile() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--rate=1000"], "handler-c.wasm");
    assert_eq!(ask(server.address, "GET", "/work/2000").status, 200);
    let mut stream = begin_to_ask(server.address, "GET", "/spin");
    write!(stream, "\r\n").unwrap();
    server.uses_cpu(Duration::from_millis(200));
    server.break_off();
    let recording = place.recording("p.wlprof");
    let spun = recording.threads.iter().flat_map(|thread| stacks(&recording, thread));
    assert!(spun.filter(|stack| stack.contains(&"spin")).count() > 50);
    drop(stream);
}

#[test]
fn who_asks_for_nothing_keeps_nobody_waiting() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--requests=1"], "handler-c.wasm");
    let half = begin_to_ask(server.address, "GET", "/work/1");
    assert_eq!(ask(server.address, "GET", "/work/1").status, 200);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    drop(half);
}

#[test]
fn a_request_counts_though_its_client_has_gone() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--requests=1"], "handler-c.wasm");
    let mut stream = begin_to_ask(server.address, "GET", "/work/4000000");
    write!(stream, "\r\n").unwrap();
    server.uses_cpu(Duration::from_millis(100));
    drop(stream);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    let requests = place.recording("p.wlprof").meta.requests;
    let [only] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((&*only.request, only.answer().as_deref(), only.count), ("GET /work/*", Some("none"), 1));
}

#[test]
fn headers_and_limits_are_those_of_wasmtime_serve() {
    let place = Place::new();
    let both = |options: &[&str]| {
        let guest = "handler-c.wasm";
        [Server::of_wasmtime(options, guest), Server::of_wlprof(&place, options, guest)]
    };
    let servers = both(&["--header", "x-said: by the server"]);
    let said = servers.each_ref().map(|server| ask_saying(server.address, "GET", "/header", "by the client").body);
    assert_eq!(said.each_ref().map(|said| said.as_str()), ["by the server\n"; 2]);
    servers.into_iter().for_each(|server| drop(server.interrupt()));
    let servers = both(&["-Wtimeout=300ms"]);
    let [their, our] = servers.each_ref().map(|server| ask(server.address, "GET", "/spin").status);
    assert_eq!((their, our), (500, 500));
    // Others are not harmed, if they have the processor for so long that they are in time.
    let [_, ours] = servers.each_ref().map(|server| server.address);
    assert!((0..100).any(|_| ask(ours, "GET", "/work/1").status == 200));
    let [_, (code, said)] = servers.map(Server::interrupt);
    assert_eq!(code, Some(0), "{said}");
    let recording = place.recording("p.wlprof");
    for thread in &recording.threads {
        let store = &recording.stores[thread.store as usize];
        let is_of_spin = store.labels.contains(&("request".to_owned(), "GET /spin".to_owned()));
        let spins = stacks(&recording, thread).any(|stack| stack.contains(&"spin"));
        assert!(is_of_spin || !spins, "{store:?}");
    }
}

#[test]
fn a_connection_to_its_shutdown_address_ends_it() {
    let place = Place::new();
    let options = ["--shutdown-addr=127.0.0.1:0"];
    let server = Server::of_wlprof(&place, &options, "handler-c.wasm");
    let address = server.other_address.unwrap();
    assert_eq!(ask(server.address, "GET", "/work/1").status, 200);
    TcpStream::connect(address).unwrap();
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.recording("p.wlprof").meta.requests.len(), 1);
}

/// The rows of a scraped profile in which some stack was sampled more than once, whichever request's it was.
fn scraped_rows(pages: SocketAddr) -> BTreeMap<Row, i64> {
    let mut rows = BTreeMap::new();
    wait_until("stacks have several samples", || {
        rows = pprof::rows(&http::get(&pages.to_string(), "/debug/pprof/profile?seconds=1").body);
        rows.values().any(|count| *count > 1)
    });
    rows
}

#[test]
fn a_server_is_looked_at_while_it_runs() {
    let place = Place::new();
    let server = Server::of_wlprof_as_it_is(&place, &["--listen=127.0.0.1:0"], "handler-c.wasm");
    let (address, pages) = (server.address, server.other_address.unwrap());
    let is_over = AtomicBool::new(false);
    let folded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(ask(address, "GET", "/work/2000").status, 200);
            }
        });
        let answers = std::panic::catch_unwind(|| (ask(pages, "GET", "/folded?seconds=1"), scraped_rows(pages)));
        is_over.store(true, Ordering::Relaxed);
        answers
    });
    let (folded, rows) = folded.expect("it answers");
    // A series each, of which servers have thousands at most, is made of each set of texts.
    let texts: BTreeSet<_> = rows.into_keys().map(|(_, texts, _)| texts).collect();
    assert!(texts.iter().all(|texts| !texts.contains_key("thread")), "{texts:?}");
    assert!(texts.iter().any(|texts| texts.get("request").is_some_and(|kind| kind == "GET /work/*")), "{texts:?}");
    assert!(folded.status == 200 && folded.body.contains("work;one_round "), "{folded:?}");
    let (code, said) = server.interrupt();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn who_scrapes_is_answered_before_the_first_request_and_between_requests() {
    let place = Place::new();
    let server = Server::of_wlprof_as_it_is(&place, &["--listen=127.0.0.1:0"], "handler-c.wasm");
    let (address, pages) = (server.address, server.other_address.unwrap());
    let nothing_runs = || {
        for path in ["/debug/pprof/goroutine", "/debug/pprof/threads"] {
            let counts = http::get(&pages.to_string(), path);
            assert!(counts.status == 200 && pprof::rows(&counts.body).is_empty(), "{path}");
        }
        assert_eq!(ask(pages, "GET", "/debug/pprof/goroutine?debug=1").body, "0 in all\n");
    };
    nothing_runs();
    let none = http::get(&pages.to_string(), "/debug/pprof/profile?seconds=1");
    assert!(none.status == 200 && pprof::rows(&none.body).is_empty());
    // What a trap prints is read by people.
    assert_eq!(ask(address, "GET", "/trap").status, 500);
    wait_until("the request's store has gone", || {
        ask(pages, "GET", "/debug/pprof/goroutine?debug=1").body == "0 in all\n"
    });
    nothing_runs();
    let (_, said) = server.interrupt();
    assert!(said.contains("a request trapped: ") && said.contains("handler.c:"), "{said}");
}

#[test]
fn what_requests_allocate_is_profiled() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--memory", "--memory-rate=1", "--requests=20"], "handler-c.wasm");
    let answers = ask_often(server.address, &["/hold/50", "/work/1"], 20, 4);
    assert_eq!(answers.values().sum::<usize>(), 20);
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    let recording = place.recording("p.wlprof");
    let stores =
        recording.stores.iter().filter(|store| store.labels.contains(&("request".into(), "GET /hold/*".into())));
    let stores: Vec<_> = stores.collect();
    assert_eq!(stores.len(), 10);
    for store in stores {
        let heap = store.heap.as_ref().expect("it is profiled");
        let is_held = |site: &&HeapSite| {
            let mut lines = recording.lines_of(site.stack);
            lines.any(|line| &*recording.functions[line.function as usize].name == "hold")
        };
        let held = heap.sites.iter().filter(is_held).map(|site| site.totals.part(HeapPart::Held).bytes).sum::<f64>();
        assert_eq!(held, 50.0 * 1024.0);
    }
}
