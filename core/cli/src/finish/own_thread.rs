//! A thread of its own: there are no limits, and a crash of it ends wlprof.

use super::making::{self, OpenOutput, Work};
use super::{FinishOptions, FinishedProfile};
use crate::interrupt::Interrupts;
use crate::output::Destination;
use std::fs::File;
use std::io::{self, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread::Builder;

/// Bytes of its stack, as many as the first thread of a process has on Linux.
const STACK: usize = 8 << 20;

/// Makes no profile: nobody asks for this here.
///
/// # Errors
/// Always.
pub(crate) fn run_child() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl FinishOptions<'_> {
    /// Makes it. A signal that ends wlprof ends this, too.
    ///
    /// # Errors
    /// What kept it from being made, in words for the user.
    pub(crate) fn make(self, interrupts: &Interrupts) -> Result<FinishedProfile, String> {
        let failed = |error: io::Error| error.to_string();
        let work = self.work().map_err(failed)?;
        let (ends, end) = channel();
        let done = ends.clone();
        let make = move || {
            let made = catch_unwind(AssertUnwindSafe(|| work.make()));
            // Nobody may wait for it any more.
            let _ = done.send(Some(made.unwrap_or_else(|_| Err(io::Error::other("it failed")))));
        };
        Builder::new().name("wlprof profile".into()).stack_size(STACK).spawn(make).map_err(failed)?;
        interrupts.making_begins(move || {
            // It may be over.
            let _ = ends.send(None);
        });
        let ended = end.recv().ok().flatten();
        interrupts.making_is_over();
        ended.ok_or("it was interrupted")?.map_err(failed)
    }

    fn work(self) -> io::Result<Work> {
        // Here and not on the thread: who interrupts that keeps the recording by reading the same file.
        let mut journal = self.journal;
        journal.rewind()?;
        let open = |to: &Destination<'_>| {
            let companion = to.companion.map(File::try_clone).transpose()?;
            Ok(OpenOutput { exporter: to.exporter, path: to.path.to_owned(), file: to.file.try_clone()?, companion })
        };
        Ok(Work {
            recording: making::read(journal)?,
            images: self.images.to_vec(),
            outputs: self.destinations.iter().map(open).collect(),
            settings: self.settings,
        })
    }
}
