//! Processes with guests of known shares, which say what they always say and end when they are to.

use crate::guest::{Place, send_signal};
use crate::push::worker::WORKER;
use crate::running::{Started, start};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Works three times as long in one function as in the other, for some tenths of a second, and says so.
const GUEST: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\40\00\00\00\07\00\00\00")
    (data (i32.const 64) "worked\n")
    (func $count (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $heavy (call $count (i32.const 3000000)))
    (func $light (call $count (i32.const 1000000)))
    (func (export "_start") (local $rounds i32)
        (local.set $rounds (i32.const 50))
        (loop $again
            (call $heavy) (call $light)
            (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 24)))))"#;

/// A process that runs a guest until it is to end.
pub(super) struct Process {
    pub(super) service: String,
    pid: u32,
    kind: Kind,
}

enum Kind {
    /// A host of `testdata` on a release of Wasmtime's Python package.
    Python(Option<Started>),
    /// wlprof, whose guest works a round for each byte that a thread sends.
    Wlprof(Arc<AtomicBool>, Option<JoinHandle<Started>>),
}

impl Process {
    /// A process of Python with the package in the folder `release`.
    pub(super) fn of_python(place: &Place, release: &Path, service: &str) -> Self {
        let guest = place.file("python-guest.wasm", wat::parse_str(GUEST).unwrap());
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python/ending_host.py");
        let mut command = Command::new("python3");
        command.arg(host).arg(guest).env("PYTHONPATH", release).env("OTEL_SERVICE_NAME", service);
        let started = start(&command);
        Self { service: service.to_owned(), pid: started.child.id(), kind: Kind::Python(Some(started)) }
    }

    /// A process of wlprof, which takes no samples itself.
    pub(super) fn of_wlprof(place: &Place, service: &str) -> Self {
        Self::of_guest(place, "wlprof-guest.wasm", &["--sampler=off"], service)
    }

    /// A process of wlprof with a guest in a file of this name.
    pub(super) fn of_guest(place: &Place, file: &str, options: &[&str], service: &str) -> Self {
        let guest = place.file(file, wat::parse_str(WORKER).unwrap()).display().to_string();
        let mut command = place.command([options, &["-q", &guest]].concat());
        let mut started = start(command.env("OTEL_SERVICE_NAME", service));
        let (pid, is_over) = (started.child.id(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let work = move || {
            // Why it ends too early is seen by its code.
            while !over.load(Ordering::Relaxed)
                && started.stdin.write_all(b".").is_ok()
                && started.stdout.read_exact(&mut [0]).is_ok()
            {}
            started
        };
        let thread = std::thread::spawn(work);
        Self { service: service.to_owned(), pid, kind: Kind::Wlprof(is_over, Some(thread)) }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// CPU time, in hundredths of a second.
    pub(super) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Ends its input, after which it works for some time, and waits for its end. Its output is what it always is.
    pub(super) fn end(mut self) {
        match &mut self.kind {
            Kind::Python(started) => {
                let ran = started.take().unwrap().end_of_input();
                assert_eq!((ran.code, &*ran.stderr), (Some(7), ""), "{ran:?}");
                assert!(!ran.stdout.is_empty() && ran.stdout.lines().all(|line| line == "worked"), "{ran:?}");
            }
            Kind::Wlprof(is_over, thread) => {
                is_over.store(true, Ordering::Relaxed);
                let ran = thread.take().unwrap().join().unwrap().end_of_input();
                assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "", ""), "{ran:?}");
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Python(None) | Kind::Wlprof(_, None) => {}
            Kind::Python(Some(started)) => _ = started.child.kill(),
            Kind::Wlprof(is_over, Some(_)) => {
                // The thread would wait for the guest if that were stopped.
                is_over.store(true, Ordering::Relaxed);
                send_signal(self.pid, "KILL");
            }
        }
    }
}
