//! `wlprof top --pid`: shows a process that runs already.

use super::display::{Display, Subject};
use super::screen::Heading;
use super::terminal::{GuestStreams, Screen};
use super::{ENOUGH, GIVEN_BACK, LOOK, Top, output};
use crate::attach::{ProcessGuests, guests};
use crate::available_plugins::Plugins;
use crate::failure::{FAILED, Failure};
use crate::interrupt::{self, Interrupts};
use crate::source_folders;
use std::fmt::Display as Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;
use wlprof::languages::Choice;
use wlprof_recording::{Clock, Journal};

/// Nobody has asked for an end.
const NOBODY: i32 = -1;

/// Shows process `pid` until the user has seen enough. The process runs on.
pub(super) fn run(top: &Top, pid: i32) -> Result<(), Failure> {
    let failed = |error: &dyn Message| Failure::new(FAILED, error);
    let output = output(top)?;
    let sources = source_folders::of_dirs(&top.source_dirs)?;
    let plugins = Plugins::for_run(&top.guest.plugins, &Choice::Auto)?;
    let options = top.sampling.of_process(Clock::Cpu);
    let clock = options.clock;
    let guests = ProcessGuests::open(pid, &top.files, &plugins, options, || Ok(Journal::of_windows()))?;
    let shown = top.shown(guests.language(), &plugins, sources);
    let reason = Arc::new(AtomicI32::new(NOBODY));
    let (by_key, by_signal) = (reason.clone(), reason.clone());
    let signal = move |signal| by_signal.store(signal, Ordering::Relaxed);
    Interrupts::default().watch(signal, 1).map_err(|error| failed(&error))?;
    let screen = Screen::new().map_err(|error| failed(&error))?;
    // What this process says meanwhile comes when the screen has been given back.
    let streams = GuestStreams::divert().map_err(|error| failed(&error))?;
    let heading = Heading::of_process(pid);
    let subject = Subject { guest: Arc::new(guests.clone()), heading, clock, shown, output };
    let quit = move |reason| by_key.store(reason, Ordering::Relaxed);
    let display = Display::start(subject, screen, Arc::new(quit))?;
    let is_enough = || reason.load(Ordering::Relaxed) != NOBODY;
    let sampled = guests.session.sample_until(is_enough);
    if !is_enough() {
        let how =
            sampled.as_ref().map_or_else(|error| format!("is sampled no more: {error};"), |()| "has ended".to_owned());
        display.guest_has_ended(how);
    }
    let mut since = Instant::now();
    while !display.is_over() {
        match reason.load(Ordering::Relaxed) {
            NOBODY => since = Instant::now(),
            signal => {
                display.quit();
                if signal != ENOUGH && since.elapsed() > GIVEN_BACK {
                    interrupt::die_of(signal);
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    display.end(|| drop(streams)).map_err(|error| failed(&error))?;
    sampled.map_err(guests::failed)?;
    match reason.load(Ordering::Relaxed) {
        NOBODY | ENOUGH => Ok(()),
        signal => interrupt::die_of(signal),
    }
}
