//! The receiver of `testdata/push`, a stand-in for the servers, and its lines about the messages that it was sent.

use crate::guest::{Place, tool};
use crate::http::Answer;
use crate::running::Watchdog;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use wlprof::recording::{Clock, Sample};

/// The schemes of addresses without TLS, one of each protocol.
pub(super) const SCHEMES: [&str; 4] = ["pyroscope", "otlp+http", "otlp+grpc", "parca"];

/// A file of `testdata/push`.
pub(super) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/push").join(name)
}

/// A Python program of `testdata/push` with the packages that it needs.
pub(super) fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(file(program)).env("PYTHONPATH", tool("push-packages")).env("PYTHONDONTWRITEBYTECODE", "1");
    // Clients that turn away at a certificate are part of the tests.
    command.env("GRPC_VERBOSITY", "NONE");
    command
}

/// A receiver that runs until it is ended or dropped.
pub(super) struct Receiver {
    child: Child,
    /// It ends when this is closed.
    stdin: Option<ChildStdin>,
    http: String,
    grpc: String,
    messages: Arc<Mutex<Vec<Message>>>,
    reader: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Starts one with these options of `receiver.py`.
    pub(super) fn start(options: &[&str]) -> Self {
        let mut command = python("receiver.py");
        let mut child = command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::of(&child);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().expect("it listens");
        assert!(!watchdog.has_bitten(), "it does not begin");
        let port = |name: &str| first.split(' ').find_map(|word| word.strip_prefix(name)).expect("it says its ports");
        let [http, grpc] = ["http=", "grpc="].map(|name| format!("127.0.0.1:{}", port(name)));
        let messages = Arc::new(Mutex::new(Vec::new()));
        let heard = messages.clone();
        let read = move || lines.for_each(|line| heard.lock().unwrap().push(Message::read(&line)));
        let (stdin, reader) = (child.stdin.take(), Some(std::thread::spawn(read)));
        Self { child, stdin, http, grpc, messages, reader }
    }

    /// Starts one that answers by this script.
    pub(super) fn answering(script: &str) -> Self {
        let receiver = Self::start(&[]);
        receiver.answers(script);
        receiver
    }

    /// Starts one with a certificate of `testdata/push/tls`.
    pub(super) fn with_tls(certificate: &str) -> Self {
        let [chain, key] = ["pem", "key"].map(|kind| file(&format!("tls/{certificate}.{kind}")).display().to_string());
        Self::start(&["--tls", &chain, &key])
    }

    /// The address of the HTTP server, without a scheme.
    pub(super) fn http(&self) -> &str {
        &self.http
    }

    /// The option that has wlprof push to it.
    pub(super) fn push(&self, scheme: &str) -> String {
        let is_grpc = scheme.contains("grpc") || scheme.starts_with("parca");
        format!("--push={scheme}://{}", if is_grpc { &self.grpc } else { &self.http })
    }

    /// Replaces the script of its answers.
    pub(super) fn answers(&self, script: &str) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let length = script.len();
        let head = "POST /answers HTTP/1.1\r\nHost: x\r\nConnection: close";
        write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{script}").unwrap();
        assert_eq!(Answer::read(&mut stream).status, 200);
    }

    /// The messages so far.
    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    /// The number of messages so far that it has taken.
    pub(super) fn taken(&self) -> usize {
        self.messages.lock().unwrap().iter().filter(|message| message.is_taken()).count()
    }

    /// Ends it, and returns all messages. None may break a rule.
    pub(super) fn end(mut self) -> Vec<Message> {
        drop(self.stdin.take());
        let watchdog = Watchdog::of(&self.child);
        self.reader.take().unwrap().join().unwrap();
        assert!(!watchdog.has_bitten(), "the receiver hung");
        let messages = self.messages();
        for message in &messages {
            assert_eq!(message.0["violations"], Value::Array(Vec::new()), "{}", message.0);
        }
        messages
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Values by function.
pub(super) type Sums = BTreeMap<String, i64>;

/// What the receiver says of a message.
#[derive(Clone, Debug)]
pub(super) struct Message(Value);

impl Message {
    fn read(line: &str) -> Self {
        Self(serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Whether the server has it now.
    pub(super) fn is_taken(&self) -> bool {
        self.0["is_taken"] == true
    }

    /// The line of the script that it was answered by.
    pub(super) fn answer(&self) -> &str {
        self.0["answer"].as_str().unwrap()
    }

    /// When it came, by a clock that never goes back.
    pub(super) fn seconds(&self) -> f64 {
        self.0["seconds"].as_f64().unwrap()
    }

    /// A header of the request, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.0["headers"][name].as_str()
    }

    pub(super) fn profiles(&self) -> &[Value] {
        self.0["profiles"].as_array().unwrap()
    }

    /// A resource attribute, or the label of a series that is made of it.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let profile = &self.profiles()[0];
        profile["resource"][name].as_str().or(profile["labels"][name.replace(['.', '-'], "_")].as_str())
    }

    /// The sets of labels that samples have, of all profiles.
    pub(super) fn label_sets(&self) -> Vec<&serde_json::Map<String, Value>> {
        let sets = self.profiles().iter().flat_map(|profile| profile["label_sets"].as_array().unwrap());
        sets.map(|set| set.as_object().unwrap()).collect()
    }

    /// When its first profile begins, in nanoseconds since 1970.
    pub(super) fn begin(&self) -> u64 {
        self.profiles()[0]["time_nanos"].as_u64().unwrap()
    }

    /// When its first profile ends.
    pub(super) fn end(&self) -> u64 {
        self.begin() + self.profiles()[0]["duration_nanos"].as_u64().unwrap()
    }

    /// The number of the process that it is of, which OTLP has.
    pub(super) fn pid(&self) -> Option<u64> {
        self.profiles()[0]["resource"]["process.pid"].as_u64()
    }

    /// Its text without headers.
    pub(super) fn text(&self) -> String {
        self.0["profiles"].to_string()
    }
}

/// The profiles of a sample type such as `cpu/nanoseconds`, added up: by all functions of each stack, or by `leaves`.
pub(super) fn sums<'m>(profiles: impl IntoIterator<Item = &'m Value>, sample_type: &str, by: &str) -> Sums {
    let mut sums = Sums::new();
    for profile in profiles {
        for (function, value) in profile[by][sample_type].as_object().into_iter().flatten() {
            *sums.entry(function.clone()).or_default() += value.as_i64().unwrap();
        }
    }
    sums.retain(|_, value| *value != 0);
    sums
}

/// All profiles of the messages that were taken.
pub(super) fn taken_profiles(messages: &[Message]) -> impl Iterator<Item = &Value> {
    messages.iter().filter(|message| message.is_taken()).flat_map(|message| message.profiles())
}

/// A recording in `place` as a profile of the same form: wlprof renders it as pprof, and `read_pprof.py` reads that.
pub(super) fn rendered(place: &Place, recording: &str, options: &[&str]) -> Value {
    let ran = place.run([&["render", "-o", "whole.pb.gz"], options, &[recording]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let output = python("read_pprof.py").arg(place.path("whole.pb.gz")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut whole: Value = serde_json::from_slice(&output.stdout).unwrap();
    // A tick that stands for a long time is several samples in a recording, all but the first without CPU time, and one in a window.
    let recording = place.recording(recording);
    let is_in_windows = |sample: &Sample| recording.meta.clock == Clock::Wall || sample.cpu_delta_ns > 0;
    whole["samples_in_windows"] = recording.samples().filter(is_in_windows).count().into();
    whole
}

/// The receiver's own test: it finds what is wrong with messages.
#[test]
fn the_receiver_finds_broken_rules() {
    let output = python("check_receiver.py").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let count = said.split(' ').next().and_then(|count| count.parse::<usize>().ok());
    assert!(count >= Some(50), "{said}");
}
