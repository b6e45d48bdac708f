//! Contexts that another process publishes, step by step as OTEP 4719 says.

use super::super::{Resource, SERVICE_INSTANCE_ID, SERVICE_NAME};
use super::*;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A publisher. Its arguments are `memfd` or `anonymous`, the version, and `named` or not. Each line of its standard input is a message in
/// hexadecimal digits, which replaces the one before; `busy` sets the time to zero, and `flicker` changes two messages all the while.
const PUBLISHER: &str = r#"
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
kind, version, naming = sys.argv[1:]
SIZE, PRIVATE, ANONYMOUS, DONTFORK = 4096, 2, 0x20, 10
if kind == "memfd":
    fd = os.memfd_create("OTEL_CTX", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    header = libc.mmap(None, SIZE, 3, PRIVATE, fd, 0)
    os.close(fd)
else:
    header = libc.mmap(None, SIZE, 3, PRIVATE | ANONYMOUS, -1, 0)
assert libc.madvise(ctypes.c_void_p(header), ctypes.c_size_t(SIZE), DONTFORK) == 0
def set_time(time):
    ctypes.memmove(header + 16, struct.pack("=Q", time), 8)
def set_message(message, size=None):
    address = ctypes.addressof(message)
    ctypes.memmove(header, struct.pack("=8sII", b"OTEL_CTX", int(version), len(message) if size is None else size), 16)
    ctypes.memmove(header + 24, struct.pack("=Q", address), 8)
def publish(message, size=None):
    set_time(0)
    set_message(message, size)
    set_time(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    # PR_SET_VMA, PR_SET_VMA_ANON_NAME. Not every kernel has it.
    return naming == "named" and libc.prctl(0x53564d41, 0, ctypes.c_void_p(header), ctypes.c_size_t(SIZE), b"OTEL_CTX") == 0
def of(text):
    data = bytes.fromhex(text)
    return (ctypes.c_char * len(data)).from_buffer_copy(data)
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "busy":
        set_time(0)
    elif word == "size":
        publish(of("00"), int(rest[0]))
    elif word == "flicker":
        both = [of(rest[0]), of(rest[1])]
        print("flickers", flush=True)
        while True:
            for message in both:
                publish(message)
    else:
        message = of(word)
        named = publish(message)
    print("named" if named else "unnamed", flush=True)
"#;

/// A process that publishes a context.
struct Publisher {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Publisher {
    fn start(arguments: [&str; 3]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", PUBLISHER]).args(arguments).env("OTEL_SERVICE_NAME", "of-environment");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 publishes");
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut publisher = Self { child, input, output };
        // `python3` may be a script that becomes the program only later.
        assert_eq!(publisher.answer(), "ready");
        publisher
    }

    /// Sends a line and returns the answer, which comes when it has been done.
    fn say(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn publish(&mut self, message: &[u8]) -> String {
        self.say(&hex(message))
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn attributes(&self) -> Option<Vec<(String, String)>> {
        attributes(&Folder::open(self.pid()).unwrap())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(attributes: &[(&str, Value)]) -> Vec<u8> {
    let of = |(key, value): &(&str, Value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(value.clone()) }),
    };
    let resource = ResourceMessage { attributes: attributes.iter().map(of).collect() };
    ProcessContext { resource: Some(resource) }.encode_to_vec()
}

fn named(name: &str) -> Vec<u8> {
    encoded(&[(SERVICE_NAME, Value::String(name.to_owned()))])
}

fn text(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn contexts_are_found_by_each_of_their_names() {
    let message = encoded(&[
        (SERVICE_NAME, Value::String("shop".into())),
        ("count", Value::Int(-7)),
        ("on", Value::Bool(true)),
        ("ratio", Value::Double(0.5)),
    ]);
    let expected = [text(SERVICE_NAME, "shop"), text("count", "-7"), text("on", "true"), text("ratio", "0.5")];
    for arguments in [["memfd", "2", "plain"], ["memfd", "2", "named"], ["anonymous", "2", "named"]] {
        let mut publisher = Publisher::start(arguments);
        let is_named = publisher.publish(&message) == "named";
        // Anonymous memory has a name only where the kernel gives it one.
        if is_named || arguments[0] == "memfd" {
            assert_eq!(publisher.attributes().unwrap(), expected, "{arguments:?}");
        }
    }
}

#[test]
fn the_context_replaces_the_environment() {
    let mut publisher = Publisher::start(["memfd", "2", "named"]);
    assert_eq!(Resource::of_process(publisher.pid()).get(SERVICE_NAME), Some("of-environment"));
    publisher.publish(&encoded(&[
        (SERVICE_NAME, Value::String("shop".into())),
        (SERVICE_INSTANCE_ID, Value::String("instance-1".into())),
        ("process.command_line", Value::String("shop --password hush".into())),
        ("telemetry.sdk.name", Value::String("opentelemetry".into())),
    ]));
    let resource = Resource::of_process(publisher.pid());
    let names = [SERVICE_NAME, SERVICE_INSTANCE_ID, "process.command_line", "telemetry.sdk.name"];
    assert_eq!(names.map(|name| resource.get(name)), [Some("shop"), Some("instance-1"), None, None]);
    publisher.publish(&named("renamed"));
    assert_eq!(Resource::of_process(publisher.pid()).get(SERVICE_NAME), Some("renamed"));
}

#[test]
fn the_example_of_the_protocol_is_read() {
    // By hand: resource { attributes { key: "service.name" value { string_value: "my-service" } } }, and an attribute besides.
    let bytes = b"\x0a\x1e\x0a\x1c\x0a\x0cservice.name\x12\x0c\x0a\x0amy-service\x12\x0a\x0a\x01k\x12\x05\x0a\x03abc";
    let mut publisher = Publisher::start(["memfd", "2", "plain"]);
    publisher.publish(bytes);
    assert_eq!(publisher.attributes().unwrap(), [text(SERVICE_NAME, "my-service")]);
}

#[test]
fn contexts_that_change_or_are_malformed_are_not_read() {
    let mut publisher = Publisher::start(["memfd", "2", "plain"]);
    assert_eq!(publisher.attributes(), None);
    publisher.publish(&named("shop"));
    assert!(publisher.attributes().is_some());
    publisher.say("busy");
    assert_eq!(publisher.attributes(), None);
    // No protobuf; too long; longer than the memory behind it.
    publisher.publish(b"\xff\xff\xff");
    assert_eq!(publisher.attributes(), None);
    publisher.say("size 4294967295");
    assert_eq!(publisher.attributes(), None);
    publisher.say("size 0");
    assert_eq!(publisher.attributes(), None);
    let mut of_another_version = Publisher::start(["memfd", "3", "plain"]);
    of_another_version.publish(&named("shop"));
    assert_eq!(of_another_version.attributes(), None);
}

#[test]
fn a_context_is_never_half_of_two() {
    let long = "x".repeat(3000);
    let mut publisher = Publisher::start(["memfd", "2", "plain"]);
    let (short, long) = (named("short"), named(&long));
    assert_eq!(publisher.say(&format!("flicker {} {}", hex(&short), hex(&long))), "flickers");
    let whole = [short, long].map(|message| {
        let context = ProcessContext::decode(message.as_slice()).unwrap();
        context.resource.unwrap().attributes.into_iter().filter_map(KeyValue::into_attribute).collect::<Vec<_>>()
    });
    let read: Vec<_> = (0..200).filter_map(|_| publisher.attributes()).collect();
    assert!(!read.is_empty() && read.iter().all(|attributes| whole.contains(attributes)));
}

#[test]
fn lines_of_other_mappings_are_left_out() {
    let of =
        |permissions: &str, name: &str| context_mapping(&format!("7f00-8f00 {permissions} 00000000 00:01 42   {name}"));
    assert_eq!(of("rw-p", "/memfd:OTEL_CTX (deleted)"), Some(0x7f00));
    assert_eq!(of("r--p", "[anon:OTEL_CTX]"), Some(0x7f00));
    assert_eq!(of("rw-p", "[anon_shmem:OTEL_CTX]"), Some(0x7f00));
    for (permissions, name) in
        [("r-xp", "/memfd:OTEL_CTX"), ("---p", "/memfd:OTEL_CTX"), ("rw-p", "/srv/memfd:OTEL_CTX"), ("rw-p", "")]
    {
        assert_eq!(of(permissions, name), None, "{permissions} {name}");
    }
    assert_eq!(context_mapping("nonsense"), None);
}
