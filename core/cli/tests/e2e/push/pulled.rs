//! What servers pull from `--listen`: Alloy and Parca accept every answer, with what they ask by default and with the settings of
//! `docs/live.md`.

use super::receiver::python;
use crate::attach::Host;
use crate::attach_live::Listener;
use crate::guest::{Place, fixture};
use crate::live::listening_at;
use crate::running::{Watchdog, wait_until, with_default_signals};
use crate::sampled::{Luck, measure_again_if_off};
use crate::serve::{Server, ask};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A run that is listened to, until it is dropped.
struct Listening {
    wlprof: Child,
    address: String,
}

impl Listening {
    fn start(command: &Command) -> Self {
        let mut command = with_default_signals(command);
        let mut wlprof = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let address = listening_at(&mut wlprof);
        Self { wlprof, address }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.wlprof.kill();
        let _ = self.wlprof.wait();
    }
}

/// The answers to what a scraper asks, as `scrape.py` judges them. `options` are those of that program.
fn scraped(address: &str, seconds: u32, options: &[&str]) -> Vec<Value> {
    let mut client = python("scrape.py");
    client
        .args([address, &seconds.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let client = client.spawn().unwrap();
    let watchdog = Watchdog::of(&client);
    let output = client.wait_with_output().unwrap();
    assert!(!watchdog.has_bitten(), "{address} does not answer");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Scrapes until each of the profiles in `wanted` has been seen with samples, and the last scrape was in time. No answer may break a rule,
/// from the first one on: scrapers do not know when a guest begins.
fn check(address: &str, seconds: u32, options: &[&str], wanted: &[&str]) {
    let checked = || {
        let answers = scraped(address, seconds, options);
        let violations: Vec<&Value> =
            answers.iter().flat_map(|answer| answer["violations"].as_array().unwrap()).collect();
        assert!(violations.is_empty(), "{violations:#?}");
        answers
    };
    let mut missing = wanted.to_vec();
    wait_until("profiles have samples", || {
        let answers = checked();
        let has_rows = |name: &str| {
            let path = |answer: &Value| answer["path"].as_str().unwrap().split('?').next().unwrap().to_owned();
            answers.iter().any(|answer| path(answer).ends_with(name) && answer["rows"].as_u64() > Some(0))
        };
        missing.retain(|name| !has_rows(name));
        missing.is_empty()
    });
    let luck = Luck { why: "other programs have the processors longer than servers wait", off: 0, of: 8 };
    measure_again_if_off(luck, || {
        let answers = checked();
        for answer in &answers {
            println!("{}: {} rows after {} s", answer["path"], answer["rows"], answer["seconds"]);
        }
        let late: Vec<String> =
            answers.iter().filter(|answer| answer["is_late"] == true).map(Value::to_string).collect();
        if late.is_empty() { Ok(()) } else { Err(late.join("\n")) }
    });
}

#[test]
fn servers_accept_what_runs_answer() {
    let place = Place::new();
    let guest = |name: &str| fixture(name).display().to_string();
    let memory = ["--listen=0", "--memory"];
    let c = place.command([&memory, &[&*guest("c-heap.wasm"), "2000000000"][..]].concat());
    check(&Listening::start(&c).address, 1, &["wall", "memory"], &["profile", "wall", "allocs", "goroutine"]);
    let script = crate::python::command(&memory, "3.11", &["copies.py", "1000000000"]);
    check(&Listening::start(&script).address, 1, &["wall", "memory"], &["profile", "wall", "allocs", "goroutine"]);
    let go = place.command(["--listen=0", &*guest("go-goroutines-1.27.wasm"), "1000000"]);
    check(&Listening::start(&go).address, 1, &["wall"], &["profile", "wall", "goroutine"]);
}

#[test]
fn servers_accept_what_serve_answers() {
    let place = Place::new();
    let options = ["--listen=127.0.0.1:0", "--memory"];
    let server = Server::of_wlprof_as_it_is(&place, &options, "handler-c.wasm");
    let (address, pages) = (server.address, server.other_address.unwrap().to_string());
    // Without a guest an answer takes five seconds, so the window is as long as Parca's by default.
    check(&pages, 10, &["wall", "memory"], &[]);
    let is_over = AtomicBool::new(false);
    let checked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(ask(address, "GET", "/work/2000").status, 200);
            }
        });
        // Its allocations are those of requests that are being answered, so they become fewer.
        let checked = std::panic::catch_unwind(|| check(&pages, 1, &["wall"], &["profile", "wall"]));
        is_over.store(true, Ordering::Relaxed);
        checked
    });
    checked.unwrap_or_else(|reason| std::panic::resume_unwind(reason));
    let (code, said) = server.interrupt();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn servers_accept_what_attach_answers() {
    let place = Place::new();
    let host = Host::of(&place, fixture("c-shares.wasm").to_str().unwrap());
    let listener = Listener::start(&place, &host, &[]);
    check(&listener.address, 1, &[], &["profile", "goroutine"]);
    listener.end();
    let listener = Listener::start(&place, &host, &["--clock=wall"]);
    check(&listener.address, 1, &["wall"], &["profile", "wall", "goroutine"]);
    listener.end();
}
