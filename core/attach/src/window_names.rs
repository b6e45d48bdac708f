//! Names for windows of a session: of each module once for all of them.

use crate::session::Session;
use crate::shared::SharedSession;
use crate::window::Window;
use std::io;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::Program;
use wlprof_recording::{ModuleId, RawRecording, Recording};
use wlprof_symbols::{SharedTables, Symbols};

/// What names windows of a session. It is kept from one window to the next: reading a module's debug information takes many times as long as
/// naming what a window has.
///
/// ```no_run
/// # fn windows(session: &wlprof_attach::SharedSession, mut window: wlprof_attach::Window) -> std::io::Result<()> {
/// let mut names = wlprof_attach::WindowNames::default();
/// loop {
///     std::thread::sleep(std::time::Duration::from_secs(15));
///     let (recording, next) = session.next_window(window, &mut names)?;
///     println!("{} samples", recording.samples().count());
///     window = next;
/// }
/// # }
/// ```
#[derive(Default)]
pub struct WindowNames {
    symbols: Symbols,
    /// The modules that it knows.
    modules: Vec<Arc<ModuleImage>>,
}

/// A window without names, and what names it.
struct Unnamed {
    recording: Vec<u8>,
    modules: Vec<Arc<ModuleImage>>,
    programs: Vec<Option<Arc<dyn Program>>>,
    siblings: Vec<Vec<ModuleId>>,
}

impl Unnamed {
    fn of(session: &mut Session, window: &Window) -> io::Result<Self> {
        let recording = session.recording(window)?;
        let (modules, programs) = (session.modules().to_vec(), session.programs().to_vec());
        Ok(Self { recording, modules, programs, siblings: session.siblings().to_vec() })
    }
}

impl SharedSession {
    /// Returns what was sampled in `window` so far, with names. Sampling stops while it is taken, and goes on while it is named.
    ///
    /// # Errors
    /// If sampling is over.
    pub fn named(&self, window: &Window, names: &mut WindowNames) -> io::Result<Recording> {
        names.name(self.look(|session| Unnamed::of(session, window))??)
    }

    /// Returns what was sampled in `window`, with names, and a window that begins where it ends: each sample is in one of them.
    ///
    /// # Errors
    /// If sampling is over.
    pub fn next_window(&self, window: Window, names: &mut WindowNames) -> io::Result<(Recording, Window)> {
        let (unnamed, next) = self.look(|session| {
            let unnamed = Unnamed::of(session, &window)?;
            let next = session.open_window(window.clock());
            session.close_window(window);
            io::Result::Ok((unnamed, next))
        })??;
        Ok((names.name(unnamed)?, next))
    }
}

impl WindowNames {
    /// Names that share what is read of modules with those of other sessions.
    pub fn sharing(tables: &SharedTables) -> Self {
        Self { symbols: Symbols::sharing(tables), modules: Vec::new() }
    }

    fn name(&mut self, unnamed: Unnamed) -> io::Result<Recording> {
        let Unnamed { recording, modules, programs, siblings } = unnamed;
        // Another module may have the id of one that no sample is of any more.
        let is_new = |id: &usize| !self.modules.get(*id).is_some_and(|known| Arc::ptr_eq(known, &modules[*id]));
        for id in 0..modules.len() {
            let siblings = siblings.get(id).map_or(&[][..], Vec::as_slice).iter().map(|sibling| *sibling as usize);
            if is_new(&id) || siblings.clone().any(|sibling| is_new(&sibling)) {
                let walked_by = siblings.clone().find(|sibling| programs.get(*sibling).is_some_and(Option::is_some));
                self.symbols.set(id, modules[id].clone(), programs[id].clone(), walked_by);
            }
        }
        self.modules = modules;
        // Frames that no sample is of may be of a module that has gone, whose id is another's by now.
        let raw = RawRecording::read(&mut &*recording).map_err(io::Error::other)?.with_used_frames();
        Ok(self.symbols.name(raw, |_| ()))
    }
}
