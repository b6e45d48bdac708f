//! The plugin: detection, and the walker that only symbolizes.

use crate::{
    bodies::Bodies,
    debug_info::{Damage, DebugInfo},
    inlined::DEEPEST,
    names::Names,
    sections::{self, Reader},
};
use wlprof_plugin::{AttachError, Detection, FrameKey, Language, ModuleView, SourceFrame, Walker};

/// The most units that detection looks at.
const DETECTED_UNITS: usize = 4096;

/// The languages that describe themselves in DWARF, whose stack is the wasm stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dwarf;

impl Language for Dwarf {
    fn name(&self) -> &str {
        "dwarf"
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let Some(info) = module.custom_section(".debug_info") else { return Detection::No };
        let versions = || sections::unit_starts(info).take(DETECTED_UNITS).map(|unit| unit.version);
        match (versions().min(), versions().max()) {
            (Some(oldest), Some(newest)) if oldest < newest => Detection::Yes(format!("DWARF {oldest} to {newest}")),
            (_, Some(version)) => Detection::Yes(format!("DWARF {version}")),
            _ => Detection::No,
        }
    }

    /// Never fails: without DWARF, frames have names alone.
    fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
        Ok(Box::new(Symbolizer::new(module)))
    }
}

/// Names the wasm frames of one module: by its DWARF, else by its name section, exports and imports, else by number.
/// Every frame in it gets at least one [`SourceFrame`].
pub struct Symbolizer {
    bodies: Bodies,
    names: Names,
    debug_info: Source,
}

/// DWARF, indexed when the first frame asks for it: many programs are recorded and few have all their frames shown.
enum Source {
    None,
    Unread(Box<gimli::Dwarf<Reader>>, usize),
    Read(Box<DebugInfo>),
}

impl Symbolizer {
    /// Copies what it needs out of `module` and reads nothing of the DWARF yet.
    pub fn new(module: &dyn ModuleView) -> Self {
        let bodies = Bodies::new(module);
        let (debug_info, size) = match sections::load(module) {
            Some((dwarf, size)) => (Source::Unread(Box::new(dwarf), size), size),
            None => (Source::None, 0),
        };
        let names = Names::new(module, bodies.len(), size);
        Self { bodies, names, debug_info }
    }
}

impl Symbolizer {
    /// Returns whether DWARF was left out that describes other code than the module has. [`Walker::warnings`] says how much.
    pub fn has_stale_dwarf(&self) -> bool {
        matches!(&self.debug_info, Source::Read(debug_info) if debug_info.damage().stale_units > 0)
    }
}

impl Walker for Symbolizer {
    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        let FrameKey::Wasm(frame) = frame else { return };
        if !frame.is_attached() {
            return;
        }
        if let Source::Unread(..) = self.debug_info
            && let Source::Unread(dwarf, size) = std::mem::replace(&mut self.debug_info, Source::None)
        {
            self.debug_info = Source::Read(Box::new(DebugInfo::new(*dwarf, size, &self.bodies)));
        }
        let before = out.len();
        if let Source::Read(debug_info) = &mut self.debug_info {
            debug_info.frames(frame, &self.bodies, &mut self.names, out);
        }
        if out.len() == before {
            out.push(self.names.frame(frame.function));
        }
    }

    /// What could not be read of the DWARF so far, in sentences for the user. Frames it concerns have names alone.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.names.gave_up() {
            let text = "some names of functions would take too long to demangle and are shown as the linker has them";
            warnings.push(text.to_owned());
        }
        let Source::Read(debug_info) = &self.debug_info else { return warnings };
        let damage = debug_info.damage();
        let Damage { units, line_programs, stale_units, stale, split, deep_places, budget, lines_budget } = damage;
        if budget {
            let text = "the DWARF asks for far more work than its size justifies, and reading it was given up: functions read \
                        after that have names alone";
            warnings.push(text.to_owned());
        }
        if lines_budget {
            let text = "the DWARF's line tables ask for far more work than their size justifies, and reading them was given \
                        up: functions read after that have no lines";
            warnings.push(text.to_owned());
        }
        if deep_places > 0 {
            warnings.push(format!(
                "at {deep_places} places more than {DEEPEST} inlined calls are nested; the outer ones are left out, which \
                 [truncated] marks"
            ));
        }
        if units > 0 {
            warnings.push(format!("{units} units of the DWARF are broken and were read only in part"));
        }
        if line_programs > 0 {
            warnings.push(format!("{line_programs} line tables of the DWARF are broken and were read only in part"));
        }
        if stale_units > 0 {
            let (are, them) =
                if stale_units == 1 { ("unit of the DWARF is", "it") } else { ("units of the DWARF are", "them") };
            warnings.push(format!(
                "{stale_units} {are} left out, since a tool rewrote the code and kept the old DWARF: {} of {} functions in {them} \
                 begin where none of the module's begins. Their functions have the names of the name section, and no lines",
                stale.stray,
                stale.fitting + stale.stray
            ));
        }
        if split > 0 {
            warnings.push(format!("{split} units of the DWARF keep their functions in .dwo files, which are not read"));
        }
        warnings
    }
}
