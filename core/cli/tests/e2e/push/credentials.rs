//! Credentials and tenants reach the server, and nothing else: no profile, no file and no message on the terminal.

use super::receiver::{Message, Receiver};
use super::worker::Worker;
use crate::guest::{Place, Ran};

const SECRET: &str = "hunter2-of-the-tests";

/// Runs a guest until its server has refused one window and taken another. Neither the run nor any profile may know the secrets.
fn run(receiver: Receiver, options: &[&str], variables: &[(&str, &str)], secrets: &[&str]) -> (Vec<Message>, Ran) {
    receiver.answers("status 503\nstatus 401");
    let place = Place::new();
    place.file("headers", format!("X-Secret: {SECRET}\n\nX-Second:second\n"));
    let mut worker = Worker::start(&place, &[&["-o", "x.wlprof"], options].concat(), variables);
    worker.works_until("it is taken", || receiver.taken() > 0);
    let ran = worker.end();
    let messages = receiver.end();
    let recording = String::from_utf8_lossy(&std::fs::read(place.path("x.wlprof")).unwrap()).into_owned();
    // The recording's text may be compressed; its notes are shown here.
    let shown = place.run(["render", "x.wlprof"]);
    for secret in secrets {
        for text in [&ran.stdout, &ran.stderr, &recording, &shown.stdout, &shown.stderr] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(messages.iter().all(|message| !message.text().contains(secret)), "{secret}: {messages:?}");
    }
    (messages, ran)
}

#[test]
fn headers_of_a_file_reach_every_server() {
    for scheme in super::SCHEMES {
        let receiver = Receiver::start(&[]);
        let options = [&*receiver.push(scheme), "--push-headers=headers", "--push-tenant=team-a"];
        let (messages, _) = run(receiver, &options, &[], &[SECRET]);
        for message in messages {
            let headers = ["x-secret", "x-second", "x-scope-orgid"].map(|name| message.header(name));
            assert_eq!(headers, [Some(SECRET), Some("second"), Some("team-a")], "{scheme}: {message:?}");
        }
    }
}

#[test]
fn headers_and_names_of_opentelemetrys_variables_are_used() {
    let receiver = Receiver::start(&[]);
    let address = format!("http://{}", receiver.http());
    let headers = format!("authorization=Bearer%20{SECRET},x-other=1");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*address),
        ("OTEL_EXPORTER_OTLP_HEADERS", &*headers),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=tests"),
    ];
    let options = ["--push=otlp", "--push-resource=service.version=1.2"];
    let (messages, _) = run(receiver, &options, &variables, &[SECRET]);
    for message in messages {
        assert_eq!(message.header("authorization"), Some(&*format!("Bearer {SECRET}")), "{message:?}");
        assert_eq!(message.header("x-other"), Some("1"), "{message:?}");
        let names = ["service.name", "deployment.environment.name", "service.version"];
        let values = names.map(|name| message.attribute(name));
        assert_eq!(values, [Some("shop"), Some("tests"), Some("1.2")], "{message:?}");
        assert!(message.attribute("service.instance.id").is_some_and(|id| !id.is_empty()), "{message:?}");
    }
}

#[test]
fn credentials_of_pyroscopes_variables_are_used() {
    // `user:hunter2-of-the-tests`, as basic authentication has it.
    const BASIC: &str = "dXNlcjpodW50ZXIyLW9mLXRoZS10ZXN0cw==";
    let receiver = Receiver::start(&[]);
    let address = format!("http://{}", receiver.http());
    let variables = [
        ("PYROSCOPE_SERVER_ADDRESS", &*address),
        ("PYROSCOPE_APPLICATION_NAME", "shop"),
        ("PYROSCOPE_TENANT_ID", "team-b"),
        ("PYROSCOPE_BASIC_AUTH_USER", "user"),
        ("PYROSCOPE_BASIC_AUTH_PASSWORD", SECRET),
    ];
    let (messages, _) = run(receiver, &["--push=pyroscope"], &variables, &[SECRET, BASIC]);
    for message in messages {
        assert_eq!(message.header("authorization"), Some(&*format!("Basic {BASIC}")), "{message:?}");
        assert_eq!(message.header("x-scope-orgid"), Some("team-b"), "{message:?}");
        assert_eq!(message.attribute("service.name"), Some("shop"), "{message:?}");
    }
}

#[test]
fn nothing_is_pushed_where_opentelemetry_is_switched_off() {
    let receiver = Receiver::start(&[]);
    let place = Place::new();
    let recording = place.path("x.wlprof");
    let options = [&*receiver.push("otlp+http"), "-o", recording.to_str().unwrap()];
    // The guest has nothing to do, but windows of a server that is not switched off would be sent at its end.
    let mut worker = Worker::start(&place, &options, &[("OTEL_SDK_DISABLED", "true")]);
    let mut rounds = 0;
    worker.works_until("there is something to send", || {
        rounds += 1;
        rounds > 100
    });
    worker.end();
    assert!(place.recording("x.wlprof").samples().count() > 0);
    let messages = receiver.end();
    assert!(messages.is_empty(), "{messages:?}");
}
