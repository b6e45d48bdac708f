//! `wlprof serve` with more requests that never end than there are processors: where guests have checks they take turns, so that others are
//! answered, and each one's samples and time stay its own.

use crate::guest::Place;
use crate::running::Watchdog;
use crate::serve::{Server, ask, begin_to_ask, stacks};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Neither ends within the test.
const ENDLESS: [&str; 2] = ["/spin", "/work/2000000000"];

/// Has twice as many requests as there are processors begun that do not end.
fn begin_endless(server: &Server) -> Vec<TcpStream> {
    let begin = |number: usize| {
        let mut stream = begin_to_ask(server.address, "GET", ENDLESS[number % 2]);
        write!(stream, "\r\n").unwrap();
        stream
    };
    let streams = (0..2 * processors()).map(begin).collect();
    server.uses_cpu(Duration::from_millis(500));
    streams
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

#[test]
fn guests_take_turns_with_a_timeout() {
    check_turns(&["-Wtimeout=3600s", "--sampler=signal"]);
}

#[test]
fn guests_take_turns_with_the_epoch_sampler() {
    check_turns(&["--sampler=epoch"]);
    check_turns(&["-Wtimeout=3600s", "--sampler=epoch"]);
}

fn check_turns(options: &[&str]) {
    let place = Place::new();
    let begun = Instant::now();
    let options = [options, &["--rate=1000"]].concat();
    let server = Server::of_wlprof(&place, &options, "handler-c.wasm");
    let streams = begin_endless(&server);
    // Of either kind there are to be samples, however seldom a busy machine lets one be taken.
    server.uses_cpu(Duration::from_millis(1000));
    let watchdog = Watchdog::of(&server.child);
    let asked = Instant::now();
    for _ in 0..20 {
        // Without turns it waits for those that do not end, and the watchdog ends it.
        assert_eq!(ask(server.address, "GET", "/header").status, 200);
    }
    println!("{options:?}: 20 requests in {:?}", asked.elapsed());
    assert!(!watchdog.has_bitten(), "{options:?}: others are not answered");
    server.uses_cpu(Duration::from_millis(500));
    server.break_off();
    drop(streams);

    let recording = place.recording("p.wlprof");
    let mut seen = [0; 2];
    let mut total_ns = 0;
    for thread in &recording.threads {
        let labels = &recording.stores[thread.store as usize].labels;
        let request = labels.iter().find(|(name, _)| name == "request").map(|(_, request)| &**request);
        for stack in stacks(&recording, thread) {
            for (kind, (function, of)) in [("spin", "GET /spin"), ("work", "GET /work/*")].into_iter().enumerate() {
                if stack.contains(&function) {
                    assert_eq!(request, Some(of), "{stack:?}");
                    seen[kind] += 1;
                }
            }
        }
        total_ns += thread.samples.iter().map(|sample| sample.period_ns).sum::<u64>();
    }
    let most = begun.elapsed() * processors() as u32;
    println!("{options:?}: {seen:?}, {:?} of at most {most:?}", Duration::from_nanos(total_ns));
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    // Guests that have yielded use no time.
    assert!(Duration::from_nanos(total_ns) <= most, "{total_ns} ns in {most:?}");
}

/// Without a limit guests have no checks, as under `wasmtime serve`: nothing else is answered.
#[test]
fn a_server_whose_processors_are_all_taken_can_be_stopped() {
    let place = Place::new();
    let server = Server::of_wlprof(&place, &["--rate=1000", "--sampler=signal"], "handler-c.wasm");
    let streams = begin_endless(&server);
    server.break_off();
    drop(streams);
    let recording = place.recording("p.wlprof");
    let spun = recording.threads.iter().flat_map(|thread| stacks(&recording, thread));
    assert!(spun.filter(|stack| stack.contains(&"spin") || stack.contains(&"work")).count() > 50);
}
