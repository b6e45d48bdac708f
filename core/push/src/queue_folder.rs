//! A queue on disk: a folder for each process, with its resource and a recording for each window that no server has yet.
//!
//! A process holds a lock on a file in its folder. Where nobody does, the process has gone, and the next one delivers what it left.
//!
//! # Security
//! Folders belong to this user and nobody else may write into them, so nobody else can put anything into their place. Their names are by chance.

use crate::queue::QueuedWindow;
use crate::resource::{Resource, random_id};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{io, str};
use wlprof_recording::{Recording, file};

/// The file with the resource: a line for each attribute, of its name, a tabulator and its value.
const RESOURCE: &str = "resource";

/// The file that is locked.
const LOCK: &str = "lock";

/// Bytes of the resource that are read.
const MAX_RESOURCE: u64 = 1 << 20;

/// Bytes of a window that are read.
const MAX_WINDOW: u64 = 1 << 30;

/// What the file of a window that is whole is called in the end.
const WINDOW: &str = "wlprof";

/// And before.
const UNFINISHED: &str = "unfinished";

/// A folder with those of processes.
pub(crate) struct QueueFolder {
    path: PathBuf,
    /// Those of resources whose windows are added.
    own: Vec<(Arc<Resource>, Arc<OwnFolder>)>,
    count: u64,
}

/// The folder of a process, which nobody else has.
#[derive(Debug)]
pub(crate) struct OwnFolder {
    path: PathBuf,
    /// What is locked.
    _lock: File,
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if windows_in(&self.path).is_empty() {
            [RESOURCE, LOCK].iter().for_each(|name| _ = fs::remove_file(self.path.join(name)));
            // It stays where anything else is in it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// A window in a file.
#[derive(Debug)]
pub(crate) struct QueuedFile {
    path: PathBuf,
    bytes: u64,
    /// It goes when the last of its files has gone.
    _folder: Arc<OwnFolder>,
}

impl QueueFolder {
    /// # Errors
    /// If there can be no such folder.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let made = folder_builder().recursive(true).create(path);
        // The user may name a link: systemd's `StateDirectory` is one.
        let real = made.and_then(|()| fs::canonicalize(path)).and_then(|real| check_own(&real).map(|()| real));
        let path = real.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, own: Vec::new(), count: 0 })
    }

    /// Takes over what processes have left that have gone, the oldest windows first.
    pub(crate) fn abandoned(&self) -> Vec<QueuedWindow> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut files = Vec::new();
        for folder in entries.map(|entry| entry.path()).filter(|path| check_own(path).is_ok()) {
            let Ok(lock) = locked(&folder) else { continue };
            remove_unfinished(&folder);
            let Ok(resource) = read_resource(&folder) else { continue };
            let (resource, own) = (Arc::new(resource), Arc::new(OwnFolder { path: folder.clone(), _lock: lock }));
            for path in windows_in(&folder) {
                let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                files.push((resource.clone(), QueuedFile { path, bytes, _folder: own.clone() }));
            }
        }
        files.sort_by(|(_, one), (_, other)| one.path.file_name().cmp(&other.path.file_name()));
        files.into_iter().map(|(resource, file)| QueuedWindow::in_file(resource, file)).collect()
    }

    /// Writes a window that began then.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub(crate) fn add(
        &mut self,
        resource: &Arc<Resource>,
        window: &Recording,
        began: SystemTime,
    ) -> Result<QueuedFile, String> {
        let folder = self.folder_of(resource).map_err(|error| format!("{}: {error}", self.path.display()))?;
        let unix_ms = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        self.count += 1;
        let path = folder.path.join(format!("{unix_ms:014}-{:06}.{WINDOW}", self.count));
        let unfinished = path.with_extension(UNFINISHED);
        let written = write(&unfinished, window).and_then(|bytes| fs::rename(&unfinished, &path).map(|()| bytes));
        let bytes = written.map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            format!("{}: {error}", path.display())
        })?;
        Ok(QueuedFile { path, bytes, _folder: folder })
    }

    fn folder_of(&mut self, resource: &Arc<Resource>) -> io::Result<Arc<OwnFolder>> {
        // Those of processes that have gone are dropped with their last windows.
        self.own.retain(|(known, folder)| Arc::strong_count(known) > 1 || Arc::strong_count(folder) > 1);
        if let Some((_, folder)) = self.own.iter().find(|(known, _)| Arc::ptr_eq(known, resource)) {
            return Ok(folder.clone());
        }
        let name = random_id().ok_or(io::ErrorKind::Unsupported)?;
        let path = self.path.join(name);
        folder_builder().create(&path)?;
        let lock = locked(&path)?;
        write_resource(&path, resource)?;
        let folder = Arc::new(OwnFolder { path, _lock: lock });
        self.own.push((resource.clone(), folder.clone()));
        Ok(folder)
    }
}

impl QueuedFile {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the window began, as its name says.
    pub(crate) fn began(&self) -> SystemTime {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let unix_ms = name.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// # Errors
    /// Why it cannot be read: `InvalidData` if it is no window.
    pub(crate) fn read(&self) -> io::Result<Recording> {
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(MAX_WINDOW).read_to_end(&mut bytes)?;
        file::read(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    pub(crate) fn remove(self) {
        // One that has gone before is not there to be sent twice.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes folders that nobody but their owner may look into: windows have names of others' functions.
fn folder_builder() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no modes"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Refuses what is no folder of this user's, or a folder that others may write into.
fn check_own(path: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(path)?;
    if !data.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        const WRITE_OF_OTHERS: u32 = 0o022;
        if data.uid() != rustix::process::geteuid().as_raw() || data.mode() & WRITE_OF_OTHERS != 0 {
            return Err(io::Error::other("it has to be a folder of this user, into which nobody else may write"));
        }
    }
    Ok(())
}

/// Creates a file that its owner may read, and nobody else.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}

/// Removes files that a process was writing when it was killed.
fn remove_unfinished(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let unfinished = entries.filter(|path| path.extension().is_some_and(|ending| ending == UNFINISHED));
    unfinished.for_each(|path| _ = fs::remove_file(path));
}

/// Locks a folder until what is returned is dropped.
fn locked(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create(true).truncate(false).open(folder.join(LOCK))?;
    file.try_lock()?;
    Ok(file)
}

/// The windows in a folder.
fn windows_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == WINDOW)).collect()
}

fn write(path: &Path, window: &Recording) -> io::Result<u64> {
    let mut out = BufWriter::new(create(path)?);
    file::write(window, &mut out)?;
    out.flush()?;
    Ok(out.get_ref().metadata()?.len())
}

fn write_resource(folder: &Path, resource: &Resource) -> io::Result<()> {
    let clean = |text: &str| text.replace(['\t', '\n'], " ");
    let line = |(name, value): &(String, String)| format!("{}\t{}\n", clean(name), clean(value));
    let text: String = resource.attributes().iter().map(line).collect();
    create(&folder.join(RESOURCE))?.write_all(text.as_bytes())
}

fn read_resource(folder: &Path) -> io::Result<Resource> {
    let mut bytes = Vec::new();
    File::open(folder.join(RESOURCE))?.take(MAX_RESOURCE).read_to_end(&mut bytes)?;
    let text = str::from_utf8(&bytes).map_err(io::Error::other)?;
    let mut resource = Resource::default();
    text.lines().filter_map(|line| line.split_once('\t')).for_each(|(name, value)| resource.set(name, value));
    Ok(resource)
}
