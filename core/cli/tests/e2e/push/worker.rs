//! A guest that works as long as a test wants it to: a round for each byte that it is sent.

use crate::guest::{Place, Ran};
use crate::running::{Started, start, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Says "ready". For each byte of its input it works, three times as long in one function as in the other, and writes the byte back.
pub(super) const WORKER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\30\00\00\00\01\00\00\00")
    (data (i32.const 8) "\40\00\00\00\06\00\00\00")
    (data (i32.const 64) "ready\n")
    (func $count (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $heavy (call $count (i32.const 3000000)))
    (func $light (call $count (i32.const 1000000)))
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 24)))
        (loop $again
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 24)))
            (if (i32.load (i32.const 24))
                (then
                    (call $heavy) (call $light)
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 24)))
                    (br $again))))))"#;

/// Such a guest.
pub(super) struct Worker(pub(super) Started);

impl Worker {
    /// Starts it in `place` with these options, and windows of a second where it pushes. It is sampled at a high rate.
    pub(super) fn start(place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::with_guest(place, WORKER, options, variables)
    }

    /// As [`Worker::start`] with another guest, which works by its input, too.
    pub(super) fn with_guest(place: &Place, guest: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        place.file("worker.wat", guest);
        let pushes = options.iter().any(|option| option.starts_with("--push="));
        let own = ["--rate=1000", "--max-overhead=100"].into_iter().chain(pushes.then_some("--push-interval=1s"));
        let name = |option: &str| option.split('=').next().unwrap().to_owned();
        let own: Vec<&str> = own.filter(|own| options.iter().all(|option| name(option) != name(own))).collect();
        let mut command = place.command([&own[..], options, &["worker.wat"]].concat());
        command.envs(variables.iter().copied());
        Self(start(&command))
    }

    /// Has it work until `holds` does.
    pub(super) fn works_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        wait_until(what, || {
            self.round();
            holds()
        });
    }

    /// Adds to `said` what wlprof says on standard error while it runs. [`Worker::end`] returns nothing of it then.
    pub(super) fn listen(&mut self, said: Arc<Mutex<String>>) -> JoinHandle<()> {
        let lines = BufReader::new(self.0.child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || lines.map(Result::unwrap).for_each(|line| said.lock().unwrap().push_str(&line)))
    }

    fn round(&mut self) {
        self.0.stdin.write_all(b".").unwrap();
        self.0.stdout.read_exact(&mut [0]).unwrap();
    }

    /// Ends its input, and waits for its end. It has ended well, whatever became of what was pushed.
    pub(super) fn end(self) -> Ran {
        let ran = self.0.end_of_input();
        assert_eq!((ran.code, &*ran.stdout), (Some(0), ""), "{ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }
}
