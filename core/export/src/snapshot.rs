//! The result of profiling, for programs that profile: a recording that is looked at and written.

use crate::{EXPORTERS, Exporter, by_path};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, absolute};
use wlprof_recording::{HeapPart, Recording, View};

/// The samples of a part of a run, with names.
///
/// ```no_run
/// # fn snapshot(snapshot: wlprof_export::Snapshot) -> std::io::Result<()> {
/// let of_tenant = snapshot.of_label("tenant", "a");
/// of_tenant.save("tenant-a.pb.gz")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot(Recording);

impl Snapshot {
    /// The samples of a recording.
    pub fn of(recording: Recording) -> Self {
        Self(recording)
    }

    /// Returns the frames, stacks and samples.
    pub fn recording(&self) -> &Recording {
        &self.0
    }

    /// Returns the frames, stacks and samples, without a copy.
    pub fn into_recording(self) -> Recording {
        self.0
    }

    /// Keeps only the frames of `view`.
    #[must_use]
    pub fn view(self, view: View) -> Self {
        Self(self.0.view(view))
    }

    /// Shows this part of what guests have allocated, in place of their time.
    ///
    /// It covers all allocations since the stores were attached. Formats that show one thing show it; pprof's has all parts.
    ///
    /// # Errors
    /// If no heap was profiled.
    pub fn of_memory(self, part: HeapPart) -> io::Result<Self> {
        if !self.0.has_heaps() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no heap was profiled, which has to be asked for before the guests begin",
            ));
        }
        Ok(Self(self.0.of_memory(part)))
    }

    /// Keeps what the owner of the stores with this label may see.
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
        let format = by_path(&path).ok_or_else(|| {
            let known: Vec<&str> = EXPORTERS.iter().map(|exporter| exporter.extensions()[0]).collect();
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
