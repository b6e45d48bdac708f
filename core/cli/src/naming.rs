//! Names for recordings that lack them: of the program that was run (`--guest`) and of its debug file (`--debug-file`). A run that was
//! cut short has none; a stripped program has few, and its symbols may lie elsewhere than where it runs.

use super::failure::Failure;
use super::options::names::Names;
use super::{guest, recordings};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use wlprof::languages::{self, Choice};
use wlprof_module::{ModuleImage, among, read_binary};
use wlprof_plugin as plugin;
use wlprof_recording::{Module, ModuleId, RawRecording, Recording};
use wlprof_symbols::{self as symbols, name};

/// The recording with names: its own, those that the program has for its frames instead, or, if it has none and no program is given,
/// numbers.
pub(super) fn named(raw: RawRecording, names: &Names) -> Result<Recording, Failure> {
    let (recording, is_of_program) = named_as_far_as_it_is(raw, names)?;
    match names.guest.as_deref() {
        Some(path) if !is_of_program => Err(recordings::other_program(path)),
        _ => Ok(recording),
    }
}

/// As [`named`], and whether the recording is of the program at all. If it is not, it has its own names.
pub(super) fn named_as_far_as_it_is(raw: RawRecording, names: &Names) -> Result<(Recording, bool), Failure> {
    let Some(path) = names.guest.as_deref() else {
        let is_named = raw.is_named();
        let mut recording = name(raw, &[], Vec::new(), |_| ());
        if !is_named {
            let note = "functions have numbers instead of names, since no profile was made of it; give the program that was \
                        run with --guest";
            recording.meta.notes.push(note.to_owned());
        }
        return Ok((recording, true));
    };
    let Program { images, notes } = Program::read(path, names)?;
    let found = ModuleMap::of(raw.modules(), &images);
    let is_of_program = !found.0.is_empty();
    if raw.is_named() {
        let mut recording = name(raw, &[], Vec::new(), |_| ());
        if is_of_program {
            symbols::rename(&mut recording, &images, programs(&images), &found.0);
            recording.meta.notes.extend(notes);
        }
        return Ok((recording, is_of_program));
    }
    // Frames are named by the numbers of modules. Others may have been loaded beside it, after it.
    if !found.is_in_order(images.len()) {
        return Err(recordings::other_program(path));
    }
    let mut recording = name(raw, &images, programs(&images), |_| ());
    recording.meta.notes.extend(notes);
    Ok((recording, true))
}

/// The modules of a program.
struct Program {
    images: Vec<Arc<ModuleImage>>,
    notes: Vec<String>,
}

impl Program {
    fn read(path: &Path, names: &Names) -> Result<Self, Failure> {
        let (binary, notes) =
            read_binary(path, names.debug_file.as_deref()).map_err(|error| guest::cannot_load(path, &error.into()))?;
        Ok(Self { images: binary.into_images().into_iter().map(Arc::new).collect(), notes })
    }
}

/// What the language that the program is in knows of its modules: it names wasm frames, too.
fn programs(images: &[Arc<ModuleImage>]) -> Vec<Option<Arc<dyn plugin::Program>>> {
    let modules: Vec<_> = (0..images.len()).filter_map(|number| among(images, number)).collect();
    languages::choose_each(&Choice::Auto, languages::BUILT_IN, "", &modules).unwrap_or_default().programs
}

/// For modules of a recording, which of a program's they are.
struct ModuleMap(HashMap<ModuleId, ModuleId>);

impl ModuleMap {
    /// Finds them by their build ids. Modules of the same bytes are distinguished by their order.
    fn of(recorded: &[Module], images: &[Arc<ModuleImage>]) -> Self {
        let mut rest: Vec<(ModuleId, String)> = (0..).zip(images).map(|(id, image)| (id, image.build_id())).collect();
        let find = |(id, module): (ModuleId, &Module)| {
            let at = rest.iter().position(|(_, build_id)| *build_id == module.build_id)?;
            Some((id, rest.remove(at).0))
        };
        Self((0..).zip(recorded).filter_map(find).collect())
    }

    /// Returns whether the first modules of the recording are all of the program's, in their order.
    fn is_in_order(&self, count: usize) -> bool {
        count > 0 && (0..count as ModuleId).all(|id| self.0.get(&id) == Some(&id))
    }
}
