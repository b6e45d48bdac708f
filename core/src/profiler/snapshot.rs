//! Windows, and snapshots of what was sampled in them.

use super::{Inner, Profiler};
use crate::sampler::Window;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, absolute};
use std::sync::PoisonError;
use std::time::Duration;
use wlprof_export::{self as export, Exporter};
use wlprof_recording::{HeapPart, Recording, View};

/// A part of a run that is sampled until this is dropped, even if the profiler is paused. Any number of windows may overlap.
///
/// ```no_run
/// # fn window(profiler: &wlprof::Profiler) -> wasmtime::Result<()> {
/// let window = profiler.window()?;
/// std::thread::sleep(std::time::Duration::from_secs(10));
/// window.snapshot()?.save("ten-seconds.json")?;
/// # Ok(())
/// # }
/// ```
pub struct OpenWindow {
    window: Window,
    profiler: Profiler,
}

impl OpenWindow {
    pub(super) fn new(window: Window, profiler: Profiler) -> Self {
        Self { window, profiler }
    }

    /// Returns what was sampled in the window so far.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn snapshot(&self) -> wasmtime::Result<Snapshot> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        let mut naming = naming.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Snapshot(naming.named(session, &self.window)?))
    }

    /// Returns what was sampled so far, as the bytes of a recording whose wasm frames have no names yet.
    ///
    /// This is for naming them in another process, or not at all. [`RawRecording`](wlprof_recording::RawRecording) reads it.
    ///
    /// # Errors
    /// If the thread that records has failed.
    pub fn unnamed(&self) -> io::Result<Vec<u8>> {
        let Inner { session, naming, .. } = &*self.profiler.0;
        naming.lock().unwrap_or_else(PoisonError::into_inner).unnamed(session, &self.window)
    }

    /// Returns how long the window has been open.
    pub fn elapsed(&self) -> Duration {
        self.window.elapsed()
    }
}

/// The samples of a part of a run, with names.
///
/// ```no_run
/// # fn snapshot(profiler: &wlprof::Profiler) -> wasmtime::Result<()> {
/// let of_tenant = profiler.snapshot()?.of_label("tenant", "a");
/// of_tenant.save("tenant-a.pb.gz")?;
/// # Ok(())
/// # }
/// ```
pub struct Snapshot(Recording);

impl Snapshot {
    /// Returns the frames, stacks and samples.
    pub fn recording(&self) -> &Recording {
        &self.0
    }

    /// Keeps only the frames of `view`.
    #[must_use]
    pub fn view(self, view: View) -> Self {
        Self(self.0.view(view))
    }

    /// Shows this part of what guests have allocated ([`Builder::heap`](super::Builder::heap)), in place of their time.
    ///
    /// It covers all allocations since the stores were attached. Formats that show one thing show it; pprof's has all parts.
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

    /// Keeps what the owner of the stores with this label ([`Attach::label`](super::Attach::label)) may see.
    ///
    /// That is their samples, without anything of the host or of other stores. With [`View::Guest`] the work of an interpreter is left out
    /// as well.
    ///
    /// # Accuracy
    /// What was not sampled is counted for all stores together, so these counts are left out.
    #[must_use]
    pub fn of_label(self, name: &str, value: &str) -> Self {
        Self(self.0.of_label(name, value))
    }

    /// Writes the snapshot in a format that comes as one file.
    ///
    /// # Errors
    /// Errors of `out`, or if the format comes as two files.
    pub fn write(&self, format: &dyn Exporter, out: &mut dyn Write) -> io::Result<()> {
        if format.companion_ending().is_some() {
            let message = format!("{} comes as two files, which `Snapshot::save` writes", format.name());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        format.export(&self.0, Path::new("profile"), out).map(|_| ())
    }

    /// Writes the snapshot to a file. The ending of its name says in which format.
    ///
    /// # Errors
    /// If no format has that ending, or if the file cannot be written.
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
