//! A library for hosts in other languages, which call C functions: built with `cargo build --example from_c`, it profiles the process that loads
//! it. The variable `GUEST` names the module that guests are compiled from, and `PROFILE` the file that the profile is written to.

#![cfg(target_os = "linux")]

use std::ffi::c_longlong;
use std::path::Path;
use std::sync::Mutex;
use wlprof_inside::{OpenWindow, Options, Profiler};

static PROFILE: Mutex<Option<(Profiler, OpenWindow)>> = Mutex::new(None);

fn start() -> Result<(), Box<dyn std::error::Error>> {
    let profiler = Profiler::with(Options { rate_hz: 500.0, max_overhead: 1.0, ..Options::default() })?;
    if let Ok(guest) = std::env::var("GUEST") {
        let name = Path::new(&guest).file_name().unwrap_or_default().to_string_lossy();
        profiler.add(&name, std::fs::read(&guest)?)?;
    }
    let window = profiler.window()?;
    *PROFILE.lock().unwrap() = Some((profiler, window));
    Ok(())
}

fn save() -> Result<(), Box<dyn std::error::Error>> {
    let (_, window) = PROFILE.lock().unwrap().take().ok_or("no profile was begun")?;
    Ok(window.snapshot()?.save(std::env::var("PROFILE")?)?)
}

/// 0, or -1 and a message.
fn code(result: Result<(), Box<dyn std::error::Error>>) -> c_longlong {
    result.map_or_else(
        |error| {
            eprintln!("{error}");
            -1
        },
        |()| 0,
    )
}

/// Begins a profile.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
extern "C" fn wlprof_inside_start() -> c_longlong {
    code(start())
}

/// Returns how many samples there are.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
extern "C" fn wlprof_inside_samples() -> c_longlong {
    PROFILE.lock().unwrap().as_ref().map_or(0, |(profiler, _)| profiler.progress().samples as c_longlong)
}

/// Ends the profile and writes it.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
extern "C" fn wlprof_inside_save() -> c_longlong {
    code(save())
}
