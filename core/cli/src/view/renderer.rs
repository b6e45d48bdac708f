//! The process that renders a recording, one part after the other, for as long as the recording is viewed.
//!
//! # Security
//! That process has the limits of `wlprof render`. They are not for this one, which goes on and starts a browser: whatever it
//! starts would have them, too.

use super::options::View;
use crate::failure::{FAILED, Failure};
use crate::os::{self, how_it_ended};
use axum::body::Bytes;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use wlprof_show::pages::Part;

/// The subcommand that wlprof starts itself with to render a recording that is to be viewed.
pub(crate) const MAKE_VIEW: &str = "make-view";

/// What precedes an answer: there is such a part.
pub(super) const FOUND: u8 = 1;
/// The same: there is none.
pub(super) const MISSING: u8 = 0;

/// Renders parts of one recording. Each is made once.
pub(super) struct Renderer(Mutex<State>);

struct State {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
    made: HashMap<Part, Option<Bytes>>,
    /// How the process ended, if it has.
    end: Option<String>,
}

impl Renderer {
    /// Has the recording read, by a process that lives as long as the calling thread.
    pub(super) fn start(view: &View) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(FAILED, format!("{}: it cannot be rendered: {error}", view.file.display()))
        };
        let mut command = Command::new(os::own_program().map_err(|error| failed(&error))?);
        // What came after `view` is said to it again.
        command.arg(MAKE_VIEW).args(std::env::args_os().skip(2)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (Some(requests), Some(mut answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        if answers.read_exact(&mut [0]).is_err() {
            let status = child.wait().map_err(|error| failed(&error))?;
            return Err(match status.code().and_then(|code| u8::try_from(code).ok()) {
                // It has said why.
                Some(code) if code != 0 => Failure::told(code),
                _ => failed(&how_it_ended(status)),
            });
        }
        Ok(Self(Mutex::new(State { child, requests, answers, made: HashMap::new(), end: None })))
    }

    /// Returns the part, and makes it if nobody has asked for it before. `None` if there is no such part.
    ///
    /// # Errors
    /// How the process has ended, if it has: all parts that were not made before are lost then.
    pub(super) fn part(&self, part: Part) -> Result<Option<Bytes>, String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = state.made.get(&part) {
            return Ok(made.clone());
        }
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        match state.ask(part) {
            Ok(answer) => {
                state.made.insert(part, answer.clone());
                Ok(answer)
            }
            Err(error) => {
                // It may be there still, with an answer that nobody understands.
                let _ = state.child.kill();
                let end = state.child.wait().map_or_else(|_| error.to_string(), how_it_ended);
                state.end = Some(end.clone());
                Err(end)
            }
        }
    }
}

impl State {
    fn ask(&mut self, part: Part) -> io::Result<Option<Bytes>> {
        let mut request = serde_json::to_vec(&part)?;
        request.push(b'\n');
        self.requests.write_all(&request)?;
        self.requests.flush()?;
        let mut head = [0; 9];
        self.answers.read_exact(&mut head)?;
        let [found, size @ ..] = head;
        let size = u64::from_le_bytes(size);
        let mut content = Vec::new();
        (&mut self.answers).take(size).read_to_end(&mut content)?;
        if content.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((found == FOUND).then(|| content.into()))
    }
}
