//! `wlprof ps`: the processes that run Wasmtime.

use crate::failure::Failure;
use crate::say;
use clap::Args;
use std::fmt::Write;
use wlprof_attach::{Host, Hosts};
use wlprof_show::escape;

/// Modules whose names are shown of a process.
const SHOWN: usize = 3;

/// Options of `wlprof ps`: there are none.
#[derive(Args)]
pub(crate) struct Ps {}

/// Lists the processes.
pub(crate) fn run(_: &Ps) -> Result<(), Failure> {
    let Hosts { hosts, forbidden } = Hosts::find();
    let mut text = String::new();
    if hosts.is_empty() {
        text.push_str("no process runs Wasmtime\n");
    } else {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>8}  {:<9} {:>6}  GUESTS  COMMAND", "PID", "WASMTIME", "IMAGES");
        hosts.iter().for_each(|host| text.push_str(&row(host)));
    }
    say::print(text.as_bytes())?;
    if forbidden > 0 {
        say::line(format_args!(
            "not looked into, since this user may not trace them: {forbidden} (with sudo more may be seen)"
        ));
    }
    Ok(())
}

fn row(host: &Host) -> String {
    let releases: Vec<_> = host.releases.iter().map(String::as_str).collect();
    let mut names: Vec<_> = host.modules.iter().map(String::as_str).take(SHOWN).collect();
    names.extend((host.modules.len() > SHOWN).then_some("…"));
    let [guests, command] = [names.join(", "), host.command.join(" ")].map(|text| escape::single_line(&text));
    format!("{:>8}  {:<9} {:>6}  {guests}  {command}\n", host.pid, releases.join(", "), host.images)
}
