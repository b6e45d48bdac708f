//! Names wasm frames: by DWARF, else by name.

use crate::{
    bodies::Bodies,
    debug_info::{Damage, DebugInfo},
    inlined::DEEPEST,
    names::Names,
    sections::{self, Reader},
};
use wlprof_plugin::{ModuleView, SourceFrame, WasmFrame};

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

    /// Returns whether DWARF was left out that describes other code than the module has. [`Symbolizer::warnings`] says how much.
    pub fn has_stale_dwarf(&self) -> bool {
        matches!(&self.debug_info, Source::Read(debug_info) if debug_info.damage().stale_units > 0)
    }

    /// Appends the functions at `frame`: innermost inlined function first. Nothing, if the frame is in another module.
    pub fn symbolize(&mut self, frame: WasmFrame, out: &mut Vec<SourceFrame>) {
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

    /// Returns sentences for the user about what could not be read of the DWARF so far. Frames it concerns have only names.
    pub fn warnings(&self) -> Vec<String> {
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
