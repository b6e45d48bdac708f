//! `wlprof agent`: every process has profiles of its own, under its own name, and none is changed by it.

mod killed;
mod processes;

use super::receiver::{Message, Receiver, SCHEMES};
use super::share::{check_shares, samples_of};
use crate::guest::{Place, send_signal, tool};
use crate::http::get;
use crate::running::{Watchdog, wait_until, with_default_signals};
use processes::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Samples of each process that shares are judged by.
const ENOUGH: i64 = 400;

/// What the agent may take at its end: the last windows two seconds, and the rest where other programs have the processors.
const END: Duration = Duration::from_secs(2 + 10);

/// An agent that samples the processes whose commands name a file of a test.
struct Agent {
    child: Child,
    /// Where it shows metrics.
    address: String,
    /// Lines of its standard error.
    said: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(place: &Place, options: &[&str]) -> Self {
        Self::start_with(place, options, &[])
    }

    fn start_with(place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Self {
        // Others' processes are none of this test's business.
        let include = format!("--include=*{}*", place.path("").display());
        let own = ["--rate=200", "--max-cpu=100", "--push-interval=1s", "--listen=0", &include];
        let name = |option: &str| option.split('=').next().unwrap().to_owned();
        let is_given = |own: &&&str| options.iter().any(|option| name(option) == name(own));
        let own = own.iter().filter(|own| !is_given(own)).copied();
        let mut command = place.command(["agent"].into_iter().chain(own).chain(options.iter().copied()));
        command.envs(variables.iter().copied());
        let mut command = with_default_signals(&command);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("metrics at http://").map(str::to_owned));
        let address = address.expect("it has metrics").trim_end_matches("/metrics").to_owned();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        let reader = std::thread::spawn(move || lines.for_each(|line| heard.lock().unwrap().push(line)));
        Self { child, address, said, reader: Some(reader) }
    }

    /// The values of its metrics, by name and labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let answer = get(&self.address, "/metrics");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", answer.head);
        let text = answer.text();
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let values = text.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
        values.map(|line| value(line).unwrap()).collect()
    }

    fn processes(&self) -> usize {
        self.metrics()["wlprof_agent_processes"] as usize
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Has it end by a signal. Returns what it has said, and how long it took.
    fn end_by(&mut self, signal: &str) -> (Vec<String>, Duration) {
        let (begun, watchdog) = (Instant::now(), Watchdog::of(&self.child));
        send_signal(self.child.id(), signal);
        let status = self.child.wait().unwrap();
        let took = begun.elapsed();
        assert!(!watchdog.has_bitten(), "it hung");
        self.reader.take().unwrap().join().unwrap();
        let said = self.said();
        assert_eq!(status.code(), (signal != "KILL").then_some(0), "{said:?}");
        assert!(said.iter().all(|line| !line.contains("panicked")), "{said:?}");
        (said, took)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The releases that `cargo xtask test-tools` provides.
fn releases() -> Vec<PathBuf> {
    let mut releases: Vec<PathBuf> =
        std::fs::read_dir(tool("wasmtime-packages")).unwrap().map(|folder| folder.unwrap().path()).collect();
    releases.sort();
    assert!(releases.len() >= 7, "{releases:?}");
    releases
}

/// Taken messages of a service.
fn of_service<'m>(messages: &'m [Message], service: &str) -> Vec<&'m Message> {
    let is_of = |message: &&Message| message.is_taken() && message.attribute("service.name") == Some(service);
    messages.iter().filter(is_of).collect()
}

/// Waits until each of these processes has been sampled so often.
fn wait_for_samples(receiver: &Receiver, processes: &[&Process], samples: i64) {
    wait_until("each process is sampled", || {
        let messages = receiver.messages();
        processes.iter().all(|process| samples_of(&of_service(&messages, &process.service)) >= samples)
    });
}

fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn processes_of_all_releases_are_sampled_as_they_come_and_go() {
    let (place, receiver) = (Place::new(), Receiver::start(&[]));
    let python = |release: &PathBuf, time: &str| {
        let name = release.file_name().unwrap().to_str().unwrap();
        Process::of_python(&place, release, &format!("{time} {name}"))
    };
    let early: Vec<Process> = releases().iter().map(|release| python(release, "early")).collect();
    // It samples itself, too.
    let wlprof = Process::of_guest(&place, "wlprof-guest.wasm", &["-o", "own.wlprof"], "wlprof");
    let mut agent = Agent::start(&place, &[&receiver.push("otlp+grpc"), "--push-resource=fleet=tests"]);
    wait_for_samples(&receiver, &early.iter().chain([&wlprof]).collect::<Vec<_>>(), 1);

    let late: Vec<Process> = releases().iter().map(|release| python(release, "late")).collect();
    let all: Vec<&Process> = early.iter().chain(&late).chain([&wlprof]).collect();
    wait_for_samples(&receiver, &all, ENOUGH);
    assert_eq!(agent.processes(), all.len());

    let pids: BTreeMap<String, u32> = all.iter().map(|process| (process.service.clone(), process.pid())).collect();
    let ends: Vec<(String, u32, u64)> = late
        .into_iter()
        .map(|process| {
            // It works for some time after this.
            let (service, pid, before_end) = (process.service.clone(), process.pid(), unix_nanos());
            process.end();
            (service, pid, before_end)
        })
        .collect();
    for (service, pid, before_end) in &ends {
        wait_until("the last window is taken", || {
            let messages = receiver.messages();
            of_service(&messages, service).iter().any(|message| message.end() > *before_end)
        });
        wait_until("its end is said", || agent.said().contains(&format!("process {pid} has ended")));
    }
    wait_until("the others are sampled", || agent.processes() == early.len() + 1);

    let (said, took) = agent.end_by("TERM");
    assert!(took < END, "{took:?}: {said:?}");
    // Only now: it was sampled until then.
    early.into_iter().chain([wlprof]).for_each(Process::end);
    let messages = receiver.end();
    assert!(messages.iter().all(Message::is_taken), "{messages:?}");
    let summary = said.last().unwrap();
    assert!(summary.starts_with(&format!("pushed {} profiles to otlp+grpc://", messages.len())), "{summary}");
    assert!(!summary.contains("lost"), "{summary}");

    let mut instances = BTreeSet::new();
    for (service, pid) in &pids {
        let own = of_service(&messages, service);
        println!("{service}: {} messages, {} samples", own.len(), samples_of(&own));
        check_shares(&own);
        let instance: BTreeSet<_> = own.iter().map(|message| message.attribute("service.instance.id")).collect();
        assert_eq!(instance.len(), 1, "{service}: {instance:?}");
        instances.extend(instance);
        for message in &own {
            assert_eq!(
                (message.pid(), message.attribute("fleet")),
                (Some(u64::from(*pid)), Some("tests")),
                "{message:?}"
            );
        }
        check_order(&own);
    }
    assert_eq!(instances.len(), pids.len(), "{instances:?}");
    assert!(!instances.contains(&None));
    let services: BTreeSet<_> = messages.iter().map(|message| message.attribute("service.name").unwrap()).collect();
    assert!(services.iter().all(|service| pids.contains_key(*service)), "{services:?}");
}

/// Checks that windows of a process follow each other.
fn check_order(messages: &[&Message]) {
    for pair in messages.windows(2) {
        // Times of windows are read from clocks with other origins.
        assert!(pair[1].begin() + 2_000_000 >= pair[0].end(), "{} {}", pair[0].end(), pair[1].begin());
    }
}

#[test]
fn patterns_choose_the_processes() {
    for scheme in SCHEMES {
        let (place, receiver) = (Place::new(), Receiver::start(&[]));
        let [left_out, other, chosen] = ["chosen-not", "other", "chosen"]
            .map(|name| Process::of_guest(&place, &format!("{name}.wasm"), &["--sampler=off"], name));
        let (include, exclude) = (format!("--include=*{}*", place.path("chosen").display()), "--exclude=*chosen-not*");
        let mut agent = Agent::start(&place, &[&receiver.push(scheme), &include, exclude]);
        wait_for_samples(&receiver, &[&chosen], ENOUGH);
        // All are looked for at a time, so that the others would be known by now.
        let metrics = agent.metrics();
        assert_eq!(metrics["wlprof_agent_processes"], 1.0, "{metrics:?}");
        assert!((1.0..=200.0).contains(&metrics["wlprof_agent_rate_hertz"]), "{metrics:?}");
        let taken = receiver.taken() as f64;
        wait_until("it is counted", || agent.metrics()["wlprof_push_windows_total"] >= taken);
        assert!(agent.metrics()["wlprof_push_sent_bytes_total"] > 0.0);
        let (said, _) = agent.end_by("INT");
        let sampled: Vec<_> = said.iter().filter(|line| line.starts_with("sampling process ")).collect();
        assert_eq!(sampled.len(), 1, "{said:?}");
        assert!(sampled[0].starts_with(&format!("sampling process {}: ", chosen.pid())), "{said:?}");
        [left_out, other, chosen].into_iter().for_each(Process::end);
        let messages = receiver.end();
        let own = of_service(&messages, "chosen");
        assert_eq!(own.len(), messages.len(), "{scheme}: {messages:?}");
        check_shares(&own);
    }
}

#[test]
fn the_last_windows_are_sent_when_the_agent_is_to_end() {
    // Far longer than a test: there are no other windows.
    const INTERVAL: &str = "--push-interval=30m";
    for (scheme, answer) in [("pyroscope", "ok"), ("otlp+grpc", "ok"), ("otlp+http", "always hang")] {
        let (place, receiver) = (Place::new(), Receiver::answering(answer));
        let processes: Vec<Process> = (0..4).map(|number| Process::of_wlprof(&place, &format!("p{number}"))).collect();
        let variables = [("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")];
        let mut agent = Agent::start_with(&place, &[&receiver.push(scheme), INTERVAL], &variables);
        wait_until("all are sampled", || agent.processes() == processes.len());
        let worked: Vec<u64> = processes.iter().map(|process| process.cpu_ticks() + 100).collect();
        wait_until("they work", || {
            processes.iter().zip(&worked).all(|(process, worked)| process.cpu_ticks() > *worked)
        });
        let (said, took) = agent.end_by("TERM");
        println!("{scheme}, {answer}: {took:?}");
        assert!(took < END, "{scheme}, {answer}: {took:?}: {said:?}");
        let services: Vec<String> = processes.iter().map(|process| process.service.clone()).collect();
        processes.into_iter().for_each(Process::end);
        let messages = receiver.end();
        if answer == "ok" {
            for service in services {
                let own = of_service(&messages, &service);
                assert_eq!(own.len(), 1, "{scheme}, {service}: {messages:?}");
                assert!(samples_of(&own) > 0, "{own:?}");
            }
        } else {
            assert!(said.last().unwrap().contains("not delivered before the end"), "{said:?}");
        }
    }
}
