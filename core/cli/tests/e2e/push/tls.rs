//! Pushing by TLS: to a server whose certificate is right, and to no other one.

use super::receiver::{Receiver, file};
use super::worker::Worker;
use crate::guest::Place;
use std::sync::{Arc, Mutex};

const SCHEMES: [&str; 4] = ["pyroscopes", "otlp+https", "otlp+grpcs", "parcas"];

#[test]
fn servers_with_the_right_certificate_are_sent_to() {
    let authority = format!("--push-ca={}", file("tls/ca.pem").display());
    for scheme in SCHEMES {
        let receiver = Receiver::with_tls("server");
        let place = Place::new();
        let mut worker = Worker::start(&place, &[&receiver.push(scheme), &authority], &[]);
        worker.works_until("it is taken", || receiver.taken() > 0);
        worker.end();
        receiver.end();
    }
}

#[test]
fn the_environment_names_a_certificate() {
    let receiver = Receiver::with_tls("server");
    let (place, address) = (Place::new(), format!("https://{}", receiver.http()));
    let authority = file("tls/ca.pem").display().to_string();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*address), ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*authority)];
    let mut worker = Worker::start(&place, &["--push=otlp"], &variables);
    worker.works_until("it is taken", || receiver.taken() > 0);
    worker.end();
    receiver.end();
}

#[test]
fn servers_with_a_wrong_certificate_are_sent_nothing() {
    let authority = format!("--push-ca={}", file("tls/ca.pem").display());
    // Of another host; and of an authority that nobody knows.
    for (certificate, options) in [("elsewhere", &[&*authority][..]), ("server", &[])] {
        for scheme in SCHEMES {
            let receiver = Receiver::with_tls(certificate);
            let place = Place::new();
            let push = receiver.push(scheme);
            let mut worker = Worker::start(&place, &[&[&*push], options].concat(), &[]);
            // What it says of this comes while it runs.
            let said = Arc::new(Mutex::new(String::new()));
            let reader = worker.listen(said.clone());
            worker.works_until("it says what is wrong", || said.lock().unwrap().contains("certificate"));
            worker.end();
            reader.join().unwrap();
            let messages = receiver.end();
            assert!(messages.is_empty(), "{certificate}, {scheme}: {messages:?}");
        }
    }
}
