//! `wlprof man-pages`: wlprof's help as pages for `man`, one for each command.

use super::failure::{EXIT_CODES, FAILED, Failure};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;
use std::path::{Path, PathBuf};

/// What people do most.
const EXAMPLES: [(&str, &str); 5] = [
    ("wlprof app.wasm", "run app.wasm, print where the time went, and write profile.json for the Firefox Profiler"),
    ("wlprof --dir . -o flame.svg python.wasm script.py", "a flame graph of a Python script's own functions"),
    ("wlprof -o run.wlprof app.wasm", "write a recording, which `wlprof render`, `view`, `diff` and `annotate` read"),
    ("wlprof --memory app.wasm", "show who allocates memory, and who still holds it, as well"),
    ("wlprof --clock=wall --listen 6060 server.wasm", "show a server while it runs, waits included"),
];

/// Options of `wlprof man-pages`.
#[derive(Debug, Args)]
pub(super) struct ManPages {
    /// The folder, made if there is none. `man` finds pages in the folder `man1` of those in its path
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages of `command`.
pub(super) fn run(pages: &ManPages, command: Command) -> Result<(), Failure> {
    let folder = &pages.folder;
    let source = format!("wlprof {}", command.get_version().unwrap_or_default());
    let mut command = command.disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(folder)
        .and_then(|()| write(&command, None, folder, &source))
        .map_err(|error| Failure::new(FAILED, format!("cannot write man pages into {}: {error}", folder.display())))
}

/// Writes the page of `command`, and those of its subcommands. `parent` is the page that lists it.
fn write(command: &Command, parent: Option<&str>, folder: &Path, source: &str) -> io::Result<()> {
    // Without the list of all options that the synopsis would be else.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let page = Man::new(command.clone().override_usage(usage).subcommand_help_heading("COMMANDS"));
    let page = page.source(source).date(" ");
    let file_name = page.get_filename();
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if parent.is_none() {
        examples().to_writer(&mut text)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    page.render_options_section(&mut text)?;
    let mut end = Roff::new();
    if let Some(parent) = parent {
        end.control("SH", ["SEE ALSO"]).text([bold(parent), roman("(1)")]);
    } else {
        end.control("SH", ["EXIT STATUS"]).text([roman(EXIT_CODES)]);
    }
    end.to_writer(&mut text)?;
    std::fs::write(folder.join(&file_name), text)?;
    let name = file_name.trim_end_matches(".1");
    command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .try_for_each(|subcommand| write(subcommand, Some(name), folder, source))
}

fn examples() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (line, what) in EXAMPLES {
        roff.control("TP", []).text([bold(line)]).text([roman(what)]);
    }
    roff
}
