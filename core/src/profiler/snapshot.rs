//! What was sampled, to be written.

use super::{Inner, Profiler};
use crate::sampler::Window;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, absolute};
use std::sync::PoisonError;
use std::time::Duration;
use wlprof_export::{self as export, Exporter};
use wlprof_recording::{HeapPart, Recording, View};

/// A part of a run that is sampled until this is dropped, whether the profiler is paused or not. Any number of them may overlap.
pub struct OpenWindow {
    window: Window,
    profiler: Profiler,
}

impl OpenWindow {
    pub(super) fn new(window: Window, profiler: Profiler) -> Self {
        Self { window, profiler }
    }

    /// What was sampled in it so far.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn snapshot(&self) -> wasmtime::Result<Snapshot> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        let mut naming = naming.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Snapshot(naming.named(session, &self.window)?))
    }

    /// As [`OpenWindow::snapshot`], as the bytes of a recording whose frames of wasm have no names yet: for who names them in another
    /// process, or not at all. [`RawRecording`](wlprof_recording::RawRecording) reads it.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn unnamed(&self) -> io::Result<Vec<u8>> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        naming.lock().unwrap_or_else(PoisonError::into_inner).unnamed(session, &self.window)
    }

    /// How long it has been open.
    pub fn elapsed(&self) -> Duration {
        self.window.elapsed()
    }
}

/// What was sampled in a part of a run, with names.
pub struct Snapshot(Recording);

impl Snapshot {
    /// Frames, stacks and samples.
    pub fn recording(&self) -> &Recording {
        &self.0
    }

    /// Only the frames that `view` has.
    #[must_use]
    pub fn view(self, view: View) -> Self {
        Self(self.0.view(view))
    }

    /// That part of what guests have allocated since their stores were attached ([`Builder::heap`](super::Builder::heap)), in place of their
    /// time. Formats that show one thing show it; pprof's has all parts.
    ///
    /// # Errors
    /// If no heap was profiled.
    pub fn of_memory(self, part: HeapPart) -> wasmtime::Result<Self> {
        wasmtime::ensure!(
            self.0.has_heaps(),
            "no heap was profiled: `Builder::heap` asks for it, of modules that `Profiler::load` compiles"
        );
        Ok(Self(self.0.of_memory(part)))
    }

    /// What the owner of the stores with this label ([`Attach::label`](super::Attach::label)) may see: their samples, and nothing of the
    /// host or of other stores. With [`View::Guest`] what an interpreter does is left out as well.
    ///
    /// # Accuracy
    /// What was not sampled is counted for all stores together, and is not told here.
    #[must_use]
    pub fn of_label(self, name: &str, value: &str) -> Self {
        Self(self.0.of_label(name, value))
    }

    /// Writes it in a format, one that comes as one file.
    ///
    /// # Errors
    /// Whatever `out` fails with; if the format comes as two files.
    pub fn write(&self, format: &dyn Exporter, out: &mut dyn Write) -> io::Result<()> {
        if format.companion_ending().is_some() {
            let message = format!("{} comes as two files, which `Snapshot::save` writes", format.name());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        format.export(&self.0, Path::new("profile"), out).map(|_| ())
    }

    /// Writes it to a file, in the format that its ending tells.
    ///
    /// # Errors
    /// If the ending tells none, or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = absolute(path)?;
        let format = export::by_path(&path).ok_or_else(|| {
            let known: Vec<&str> = export::EXPORTERS.iter().map(|exporter| exporter.extensions()[0]).collect();
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: its ending tells no format (known: .{})", path.display(), known.join(", .")),
            )
        })?;
        let file = File::create(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let mut out = BufWriter::new(file);
        let companion = format.export(&self.0, &path, &mut out)?;
        out.flush()?;
        if let (Some(contents), Some(ending)) = (companion, format.companion_ending()) {
            let mut second = path.into_os_string();
            second.push(ending);
            std::fs::write(second, contents)?;
        }
        Ok(())
    }
}
