//! `--listen`: what a guest that runs shows to those who ask, and that it runs as ever while nobody does.

use crate::guest::{Place, Ran, fixture, send_signal};
use crate::http::{Answer, get, request};
use crate::pprof::{sums_by_pprof, times_by_pprof};
use crate::python;
use crate::running::{Started, start, wait_until};
use crate::world;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use wlprof::recording::{Clock, Recording, State, file};

/// Says "ready", and then computes without end, three times as long in one function as in the other.
const BUSY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 32) "\30\00\00\00\06\00\00\00")
    (data (i32.const 48) "ready\n")
    (func $count (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $heavy (call $count (i32.const 300000)))
    (func $light (call $count (i32.const 100000)))
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 24)))
        (loop $again (call $heavy) (call $light) (br $again))))"#;

/// A guest that runs, and where it is shown.
struct Live {
    /// `None` when it has ended.
    started: Option<Started>,
    /// Address and port.
    address: String,
}

impl Live {
    /// Starts `wlprof` with these arguments, and `--listen`, in `place`.
    fn start(place: &Place, arguments: &[&str]) -> Self {
        Self::of(&place.command(["--listen=0"].iter().chain(arguments)))
    }

    fn of(command: &Command) -> Self {
        let mut started = start(command);
        let address = listening_at(&mut started.child);
        Self { started: Some(started), address }
    }

    fn busy(place: &Place) -> Self {
        place.file("busy.wat", BUSY);
        Self::start(place, &["busy.wat"])
    }

    fn get(&self, path: &str) -> Answer {
        get(&self.address, path)
    }

    /// What is answered where there is something to answer.
    fn body(&self, path: &str) -> Vec<u8> {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.body
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.body(path)).unwrap()
    }

    /// A window as a recording.
    fn recording(&self, query: &str) -> Recording {
        let recording = file::read(&self.body(&format!("/wlprof?{query}"))).unwrap();
        assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
        assert_eq!(recording.samples().count() as u64, recording.ticks.sampled);
        recording
    }

    /// Values by name, of those without labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.text("/metrics");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        values.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        self.metrics()[name]
    }

    /// Waits until the guest has used a quarter of a second of CPU time more, and gives how many samples were taken meanwhile.
    fn samples_of_some_work(&self) -> f64 {
        let before = self.metrics();
        let cpu = "wlprof_guest_cpu_seconds_total";
        wait_until("the guest works", || self.metric(cpu) > before[cpu] + 0.25);
        self.metric("wlprof_samples_total") - before["wlprof_samples_total"]
    }

    /// Waits until the guest has been seen to wait in a function of that name, and gives what was seen.
    fn wait_for_wait_in(&self, function: &str) -> Recording {
        let mut seen = None;
        wait_until("the guest waits", || {
            let recording = self.recording("seconds=0.5&clock=wall");
            let waits = functions_in(&recording, State::Blocked).contains(&function);
            seen = Some(recording);
            waits
        });
        seen.unwrap()
    }

    /// Ends the guest with a signal.
    fn kill(mut self) -> Ran {
        let started = self.started.take().unwrap();
        started.signal("TERM");
        let ran = started.end();
        assert_eq!((ran.signal, ran.stdout.as_str()), (Some(15), ""), "{ran:?}");
        ran
    }
}

/// Where a command listens, by what it says on standard error.
pub(crate) fn listening_at(wlprof: &mut Child) -> String {
    let mut messages = BufReader::new(wlprof.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("listening at http://") {
        line.clear();
        assert!(messages.read_line(&mut line).unwrap() > 0, "it listens nowhere");
    }
    wlprof.stderr = Some(messages.into_inner());
    line.trim_end().trim_start_matches("listening at http://").trim_end_matches('/').to_owned()
}

/// A guest that computes without end is not to do so when its test has failed.
impl Drop for Live {
    fn drop(&mut self) {
        if let Some(started) = &mut self.started {
            let _ = started.child.kill();
        }
    }
}

/// A guest without an end, which is ended with its test.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        // It may have been ended by the test.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The functions on the stacks of samples of that state, each once.
fn functions_in(recording: &Recording, state: State) -> Vec<&str> {
    let samples = recording.samples().filter(|sample| sample.state == state);
    let lines = samples.flat_map(|sample| recording.lines_of(sample.stack));
    let mut names: Vec<_> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn a_guest_is_sampled_only_while_somebody_asks() {
    let place = Place::new();
    let live = Live::busy(&place);
    assert_eq!(live.samples_of_some_work(), 0.0);
    let profile = place.file("cpu.pb.gz", live.body("/debug/pprof/profile?seconds=3"));
    let times = times_by_pprof(&profile);
    assert!(times["heavy"].1 > times["light"].1, "{times:?}");
    assert!(times.keys().any(|name| name == "_start") && times["count"].0 > 0, "{times:?}");
    // One that a timer was just set for may still come.
    live.samples_of_some_work();
    assert_eq!(live.samples_of_some_work(), 0.0);
    let metrics = live.metrics();
    assert_eq!(metrics["wlprof_guest_memory_bytes"], 65536.0);
    assert_eq!(metrics["wlprof_host_calls_total{import=\"wasi_snapshot_preview1.fd_write\"}"], 1.0);
    assert!(metrics["wlprof_sampled_seconds_total"] > 0.0 && metrics["wlprof_sampling_seconds_total"] > 0.0);
    live.kill();
}

#[test]
fn a_window_says_what_of_its_time_was_sampled() {
    let place = Place::new();
    let live = Live::busy(&place);
    live.samples_of_some_work();
    let recording = live.recording("seconds=3");
    let meta = &recording.meta;
    let weights: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    println!("{} of {}, {} not sampled, {}", weights, meta.cpu_ns, meta.unsampled_ns, meta.sampling_ns);
    assert_eq!((meta.clock, meta.guest.as_str()), (Clock::Cpu, "busy.wat"));
    // The guest's clock is read beside it: by the time of a tick the sums may differ.
    assert!((weights + meta.unsampled_ns + meta.sampling_ns).abs_diff(meta.cpu_ns) < 20_000_000, "{meta:?}");
    assert!(meta.duration_ns >= 3_000_000_000 && meta.cpu_ns <= meta.duration_ns + 20_000_000, "{meta:?}");
    assert!(meta.unsampled_ns < meta.cpu_ns / 4, "{meta:?}");
    assert!(recording.samples().all(|sample| sample.time_ns <= meta.duration_ns), "{meta:?}");
    live.kill();
}

#[test]
fn clients_overlap_leave_and_read_slowly_and_nothing_is_left_of_them() {
    const CLIENTS: usize = 20;
    let place = Place::new();
    let live = Live::busy(&place);
    let files = format!("/proc/{}/fd", live.started.as_ref().unwrap().child.id());
    let open_files = || std::fs::read_dir(&files).unwrap().count();
    live.body("/folded?seconds=0.01");
    let before = open_files();
    // Whoever leaves midway, and whoever does not read.
    let leaving = request(&live.address, "GET", "/debug/pprof/profile?seconds=3000", "");
    let _slow: Vec<TcpStream> = (0..4).map(|_| request(&live.address, "GET", "/firefox?seconds=0.1", "")).collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let live = &live;
            scope.spawn(move || {
                let seconds = 2.0 + client as f64 / 20.0;
                let text = live.text(&format!("/folded?seconds={seconds}"));
                assert!(text.contains("_start;heavy;count "), "{client}: {text}");
            });
        }
    });
    drop(leaving);
    drop(_slow);
    for _ in 0..50 {
        live.body("/folded?seconds=0.01");
    }
    // The last of those that left is seen when its connection is looked at.
    wait_until("nobody asks any more", || live.samples_of_some_work() == 0.0);
    wait_until("what clients had open is closed", || open_files() <= before);
    live.kill();
}

/// Memory that 1,000 answers may leave: what 8 KiB each would be, the least that a request is read into, so that a connection that
/// is kept shows. Allocators keep a few hundred KiB of what was given back.
const LEFT_BYTES: u64 = 8 << 20;

/// What is answered at once, and how.
const AT_ONCE: [(&str, u16); 11] = [
    ("/metrics", 200),
    ("/debug/pprof/", 200),
    ("/debug/pprof/cmdline", 200),
    ("/debug/pprof/goroutine?debug=1", 200),
    ("/debug/pprof/goroutine?debug=2", 200),
    ("/debug/pprof/threads?debug=2", 200),
    ("/debug/pprof/goroutine", 200),
    ("/debug/pprof/goroutine?debug=3", 400),
    ("/debug/pprof/block", 200),
    ("/firefox?seconds=soon", 400),
    ("/no/such/page", 404),
];

const SHORT_WINDOWS: [&str; 6] = [
    "/debug/pprof/profile?seconds=0.01",
    "/debug/pprof/wall?seconds=0.02",
    "/firefox?seconds=0.03",
    "/folded?seconds=0.04",
    "/flamegraph?seconds=0.05",
    "/?seconds=0.01",
];

#[test]
fn a_thousand_requests_one_after_another_leave_nothing() {
    let place = Place::new();
    let live = Live::busy(&place);
    let process = format!("/proc/{}", live.started.as_ref().unwrap().child.id());
    let entries = |folder: &str| std::fs::read_dir(format!("{process}/{folder}")).unwrap().count();
    // Of its own: pages of files come and go as the system likes.
    let memory = || {
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let requests = |from: usize, to: usize| {
        for number in from..to {
            match number % 25 {
                0 => _ = live.body(SHORT_WINDOWS[number / 25 % SHORT_WINDOWS.len()]),
                _ => {
                    let (path, status) = AT_ONCE[number % AT_ONCE.len()];
                    let answer = live.get(path);
                    assert_eq!(answer.status, status, "{path}: {}", answer.text());
                }
            }
        }
    };
    // All there is once, for what is made when it is first needed.
    requests(0, 25 * SHORT_WINDOWS.len());
    let (files, threads, bytes) = (entries("fd"), entries("task"), memory());
    requests(0, 1000);
    println!("{files} files, {threads} threads, {bytes} bytes; {} bytes after 1,000 requests", memory());
    let left = memory().saturating_sub(bytes);
    assert!(left <= LEFT_BYTES, "{left} bytes are left of 1,000 requests");
    wait_until("what clients had open is closed", || entries("fd") <= files);
    wait_until("threads that have nothing to do are gone", || entries("task") <= threads);
    assert_eq!(live.metric("wlprof_host_calls_total{import=\"wasi_snapshot_preview1.fd_write\"}"), 1.0);
    live.kill();
}

#[test]
fn memory_is_what_it_is_now_and_not_at_the_last_call() {
    let place = Place::new();
    let grows =
        BUSY.replace("(loop $again (call $heavy)", "(drop (memory.grow (i32.const 99)))\n(loop $again (call $heavy)");
    assert_ne!(grows, BUSY);
    place.file("busy.wat", grows);
    let live = Live::start(&place, &["busy.wat"]);
    wait_until("it has grown", || live.metric("wlprof_guest_memory_bytes") == 6_553_600.0);
    // On a busy machine the guest may have no processor in a short one.
    let mut last = None;
    wait_until("a window has a sample", || {
        let window = live.recording("seconds=0.2");
        last = window.stores.first().and_then(|store| Some(store.memory.last()?.bytes));
        last.is_some()
    });
    assert_eq!(last, Some(6_553_600));
    live.kill();
}

#[test]
fn what_a_python_guest_waits_in_is_shown_while_it_waits() {
    let place = Place::new();
    place.file(
        "waits.py",
        "import sys\ndef waits_for_input():\n    return sys.stdin.readline()\nprint('ready', flush=True)\nwaits_for_input()\n",
    );
    let mut command = place.command(["--listen=0", "--dir=.", &python::library("3.11")]);
    command.arg(fixture("python-3.11.wasm")).arg("waits.py");
    let live = Live::of(&command);
    let recording = live.wait_for_wait_in("waits_for_input");
    let functions = functions_in(&recording, State::Blocked);
    assert!(functions.contains(&"waits_for_input"), "{functions:?}");
    assert!(functions.contains(&"wasi_snapshot_preview1.fd_read"), "{functions:?}");
    let waited: u64 =
        recording.samples().filter(|sample| sample.state == State::Blocked).map(|sample| sample.period_ns).sum();
    println!("{waited} of {}", recording.meta.duration_ns);
    assert!(waited > recording.meta.duration_ns / 2, "{waited} of {}", recording.meta.duration_ns);
    assert_eq!(live.recording("seconds=0.1").samples().count(), 0, "CPU time of a guest that waits");
    for debug in ["1", "2"] {
        let stacks = live.text(&format!("/debug/pprof/threads?debug={debug}"));
        assert!(stacks.contains("waits_for_input") && stacks.contains("waits.py:3"), "{stacks}");
    }
    live.kill();
}

#[test]
fn go_guests_show_goroutines_and_their_own_functions() {
    let place = Place::new();
    let guest = fixture("go-goroutines-1.27.wasm");
    // Long enough for all that is asked: it is ended when that is answered.
    let child = place
        .command(["--listen=0".as_ref(), guest.as_os_str(), "100000".as_ref()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut guest = Endless(child);
    let lines = BufReader::new(guest.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.filter_map(|line| Some(line.strip_prefix("listening at http://")?.trim_end_matches('/').to_owned()));
    let address = address.take(1).next().unwrap();
    // On a busy machine it gets on slowly, and is sampled seldom.
    wait_until("its own functions are in a profile", || {
        let profile = place.file("cpu.pb.gz", get(&address, "/debug/pprof/profile?seconds=2").body);
        let times = times_by_pprof(&profile);
        println!("{times:?}");
        times.contains_key("main.stage") && times.contains_key("main.hash")
    });
    wait_until("eight workers, and the runtime's own, are shown", || {
        let all = get(&address, "/debug/pprof/goroutine?debug=2").text();
        println!("{all}");
        all.split("\n\n").filter(|part| part.starts_with("goroutine ")).count() > 8 && all.contains("main.stage(...)")
    });
    wait_until("equal stacks are shown together", || {
        let grouped = get(&address, "/debug/pprof/goroutine?debug=1").text();
        println!("{grouped}");
        grouped.contains(" @\n#\t") && grouped.contains("main.stage")
    });
    wait_until("goroutines are counted", || {
        let counts = place.file("goroutines.pb.gz", get(&address, "/debug/pprof/goroutine").body);
        let counts = sums_by_pprof(&counts, &["-unit=auto"], "");
        println!("{counts:?}");
        counts.get("main.stage").is_some_and(|(_, all)| *all == 8)
    });
    send_signal(guest.0.id(), "TERM");
    guest.0.wait().unwrap();
}

/// What Grafana's Alloy and Parca ask for by default, and what else has the same form.
const SCRAPED: [&str; 8] =
    ["profile?seconds=0.5", "allocs", "block", "goroutine", "mutex", "threadcreate", "threads", "wall?seconds=0.5"];

#[test]
fn all_that_servers_scrape_by_default_are_profiles() {
    let place = Place::new();
    for options in [&["busy.wat"][..], &["--memory", "busy.wat"]] {
        place.file("busy.wat", BUSY);
        let live = Live::start(&place, options);
        live.samples_of_some_work();
        for page in SCRAPED {
            let functions = || {
                let answer = live.get(&format!("/debug/pprof/{page}"));
                assert_eq!(answer.status, 200, "{page}: {}", answer.text());
                assert!(answer.head.contains("content-type: application/octet-stream"), "{page}: {}", answer.head);
                sums_by_pprof(&place.file("x.pb.gz", answer.body), &["-unit=auto", "-sample_index=0"], "")
            };
            if ["allocs", "block", "mutex", "threadcreate"].contains(&page) {
                assert_eq!(functions(), BTreeMap::new(), "{page}");
            } else {
                // On a busy machine the guest may have no processor in a short window.
                wait_until("the guest is in the profile", || functions().contains_key("_start"));
            }
        }
        live.kill();
    }
}

#[test]
fn the_pages_say_what_there_is_and_what_is_wrong() {
    let place = Place::new();
    let live = Live::busy(&place);
    let unknown = live.get("/debug/pprof/blocks");
    assert_eq!(unknown.status, 404);
    for page in ["/debug/pprof/profile", "/metrics", "/flamegraph", "/firefox", "/speedscope"] {
        assert!(unknown.text().contains(page), "{}", unknown.text());
    }
    let wrong = live.get("/firefox?seconds=soon");
    assert!(wrong.status == 400 && wrong.text().contains("expected 0.01 to 3600"), "{}", wrong.text());
    assert_eq!(live.get("/debug/pprof/goroutine?debug=3").status, 400);
    assert_eq!(live.text("/debug/pprof/cmdline"), "busy.wat");
    let hot = live.get("/?seconds=2");
    assert!(hot.text().contains("<h1>busy.wat</h1>") && hot.text().contains("  heavy\n"), "{}", hot.text());
    assert!(hot.head.contains("content-security-policy: default-src 'none'"), "{}", hot.head);
    let flame = live.get("/flamegraph?seconds=0.2");
    assert!(flame.head.contains("content-type: image/svg+xml"), "{}", flame.head);
    roxmltree::Document::parse_with_options(
        &flame.text(),
        roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() },
    )
    .unwrap();
    let mut from_profiler =
        request(&live.address, "GET", "/firefox?seconds=0.2", "Origin: https://profiler.firefox.com\r\n");
    let answer = Answer::read(&mut from_profiler);
    assert!(answer.head.contains("access-control-allow-origin: https://profiler.firefox.com"), "{}", answer.head);
    serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap();
    live.kill();
}

#[test]
fn whoever_waits_when_the_guest_ends_is_given_what_there_is() {
    let place = Place::new();
    place.file("cat.wat", world::CAT);
    let mut live = Live::start(&place, &["cat.wat"]);
    live.wait_for_wait_in("wasi_snapshot_preview1.fd_read");
    let before = live.metric("wlprof_samples_total");
    let mut waiting = request(&live.address, "GET", "/wlprof?seconds=3000&clock=wall", "");
    // The window is open when the guest is looked at.
    wait_until("the guest is sampled", || live.metric("wlprof_samples_total") > before);
    let mut started = live.started.take().unwrap();
    started.stdin.write_all(b"text").unwrap();
    let ran = started.end_of_input();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "text"), "{ran:?}");
    let answer = Answer::read(&mut waiting);
    let recording = file::read(&answer.body).unwrap();
    assert!(functions_in(&recording, State::Blocked).contains(&"wasi_snapshot_preview1.fd_read"));
    assert_eq!(place.files(), ["cat.wat"]);
}

#[test]
fn a_run_that_is_recorded_is_shown_as_well() {
    let place = Place::new();
    place.file("busy.wat", BUSY);
    let live = Live::start(&place, &["-o", "run.wlprof", "busy.wat"]);
    assert!(live.samples_of_some_work() > 0.0);
    let refused = live.get("/debug/pprof/wall?seconds=0.1");
    assert!(refused.status == 409 && refused.text().contains("--clock=wall"), "{}", refused.text());
    let window = live.recording("seconds=3");
    live.kill();
    let run = place.recording("run.wlprof");
    let count = |recording: &Recording| recording.samples().count();
    assert!(count(&window) > 0 && count(&run) > count(&window), "{} of {}", count(&window), count(&run));
}

#[test]
fn what_a_guest_holds_is_shown_while_it_runs() {
    /// Says "ready", and takes 1000 bytes again and again: it never gives half of them back.
    const TAKING: &str = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 32) "\30\00\00\00\06\00\00\00")
        (data (i32.const 48) "ready\n")
        (global $next (mut i32) (i32.const 65536))
        (func $malloc (param i32) (result i32)
            (global.set $next (i32.add (global.get $next) (i32.const 16)))
            (global.get $next))
        (func $free (param i32))
        (func $keeps (drop (call $malloc (i32.const 1000))))
        (func $gives (call $free (call $malloc (i32.const 1000))))
        (func (export "_start") (local $rounds i32)
            (drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 24)))
            (loop $again
                (call $keeps) (call $gives)
                (br_if $again (i32.lt_u (local.tee $rounds (i32.add (local.get $rounds) (i32.const 1))) (i32.const 5000))))
            (loop $then (br $then))))"#;
    let place = Place::new();
    place.file("taking.wat", TAKING);
    let live = Live::start(&place, &["--memory", "--memory-rate=1", "taking.wat"]);
    let sums = |path: &str, index: &str| {
        std::fs::write(place.path("heap.pb.gz"), live.body(path)).unwrap();
        sums_by_pprof(&place.path("heap.pb.gz"), &[&format!("-sample_index={index}"), "-unit=B"], "B")
    };
    wait_until("it has taken all", || {
        sums("/debug/pprof/heap", "alloc_space").get("gives").is_some_and(|(own, _)| *own == 5_000_000)
    });
    let held = sums("/debug/pprof/allocs", "inuse_space");
    assert_eq!(held["keeps"].0, 5_000_000);
    assert!(held.get("gives").is_none_or(|(own, _)| *own == 0), "{held:?}");
    let page = live.text("/memory");
    assert!(page.contains("who still held memory") && page.contains("keeps"), "{page}");
    live.kill();
    let live = Live::busy(&place);
    let answer = live.get("/debug/pprof/heap");
    assert!(answer.status == 404 && answer.text().contains("--memory"), "{}", answer.text());
}
