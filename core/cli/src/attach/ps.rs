//! `wlprof ps`: the processes that run Wasmtime.

use super::ProcessGuests;
use crate::available_plugins::Plugins;
use crate::failure::Failure;
use crate::live_guest::LiveGuest;
use crate::say;
use clap::Args;
use std::fmt::Write;
use wlprof::languages::Choice;
use wlprof_attach::{Host, Hosts, Options};
use wlprof_plugin::ModuleView;
use wlprof_recording::Journal;
use wlprof_show::escape;

/// Modules whose names are shown of a process.
const SHOWN: usize = 3;

/// Options of `wlprof ps`: there are none.
#[derive(Args)]
pub(crate) struct Ps {}

/// Lists the processes.
pub(crate) fn run(_: &Ps) -> Result<(), Failure> {
    let Hosts { hosts, forbidden } = Hosts::find();
    let plugins = Plugins::for_run(&[], &Choice::Auto)?;
    let mut text = String::new();
    if hosts.is_empty() {
        text.push_str("no process runs Wasmtime\n");
    } else {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>8}  {:<9} {:>6} {:>7}  {:<10}  GUESTS  COMMAND",
            "PID", "WASMTIME", "IMAGES", "IN WASM", "LANGUAGES"
        );
        hosts.iter().for_each(|host| text.push_str(&row(host, &plugins)));
    }
    say::print(text.as_bytes())?;
    if forbidden > 0 {
        say::line(format_args!(
            "not looked into, since this user may not trace them: {forbidden} (with sudo more may be seen)"
        ));
    }
    Ok(())
}

fn row(host: &Host, plugins: &Plugins) -> String {
    let releases: Vec<_> = host.releases.iter().map(String::as_str).collect();
    // It may have ended since.
    let guests = ProcessGuests::open(host.pid, &[], plugins, Options::default(), || Ok(Journal::default())).ok();
    let images = guests.as_ref().map(LiveGuest::images).unwrap_or_default();
    let mut names: Vec<_> = match images.is_empty() {
        true => host.modules.iter().map(String::as_str).take(SHOWN).collect(),
        false => images.iter().map(|image| image.name()).take(SHOWN).collect(),
    };
    names.extend((images.len().max(host.modules.len()) > SHOWN).then_some("…"));
    let in_wasm = guests.as_ref().and_then(|guests| guests.threads_in_wasm().ok());
    let in_wasm = in_wasm.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let languages: Vec<_> = guests.iter().flat_map(ProcessGuests::languages).map(String::as_str).collect();
    let languages = if languages.is_empty() { "-".to_owned() } else { languages.join(",") };
    let [guests, command] = [names.join(", "), host.command.join(" ")].map(|text| escape::single_line(&text));
    format!(
        "{:>8}  {:<9} {:>6} {in_wasm:>7}  {languages:<10}  {guests}  {command}\n",
        host.pid,
        releases.join(", "),
        host.images
    )
}
