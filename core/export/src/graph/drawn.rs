//! The call graph as a picture: Graphviz lays it out and draws it.
//!
//! A layout that one can read is a program of its own, and Graphviz is the one that people have. It runs within the limits of
//! the process that starts it.

use super::CallGraph;
use crate::Exporter;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use wlprof_recording::Recording;

/// Graphviz's program for graphs with a direction.
const PROGRAM: &str = "dot";

/// `graph-svg`: by Graphviz, where there is one.
pub(crate) struct DrawnCallGraph;

impl Exporter for DrawnCallGraph {
    fn name(&self) -> &'static str {
        "graph-svg"
    }

    fn description(&self) -> &'static str {
        "The call graph with times, drawn by Graphviz, which has to be installed"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["svg"]
    }

    fn how_to_open(&self, _: &Path) -> String {
        "open it in a browser".to_owned()
    }

    fn check(&self) -> Result<(), String> {
        match drawn(b"digraph {}") {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "Graphviz is to draw it: {error}; install it (Debian: apt-get install graphviz), or name a .dot file"
            )),
        }
    }

    fn export(&self, recording: &Recording, path: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let mut dot = Vec::new();
        CallGraph.export(recording, path, &mut dot)?;
        out.write_all(&drawn(&dot)?)?;
        Ok(None)
    }
}

/// The picture of a graph in DOT.
fn drawn(dot: &[u8]) -> io::Result<Vec<u8>> {
    let failed = |reason: &str| io::Error::other(format!("`{PROGRAM} -Tsvg`: {reason}"));
    let mut command = Command::new(PROGRAM);
    command.arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error.to_string()))?;
    let input = child.stdin.take();
    let Output { status, stdout, stderr } = thread::scope(|scope| {
        // If it ends before it has read all, how it ended says more than that.
        scope.spawn(move || input.map(|mut input| input.write_all(dot)));
        child.wait_with_output()
    })?;
    if status.success() {
        Ok(stdout)
    } else {
        let said = String::from_utf8_lossy(&stderr);
        Err(failed(&format!("{status}: {}", said.lines().next().unwrap_or_default())))
    }
}
