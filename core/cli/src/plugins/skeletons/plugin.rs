//! A wlprof plugin for LANGUAGE. See README.md.
#![deny(unsafe_code)]

use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, Language, ModuleView, Program, SourceFrame, Truncation,
    Walker, WasmFrame,
};
use std::sync::Arc;

wlprof_plugin::export_plugin!("LANGUAGE" => Plugin);

/// The language.
struct Plugin;

impl Language for Plugin {
    fn name(&self) -> &str {
        "LANGUAGE"
    }

    /// Whether a module is in this language. Cheap: it is asked about every guest.
    fn detect(&self, module: &dyn ModuleView) -> Detection {
        // Look for something that every program of the language has and no other does.
        match module.variable_address("LANGUAGE_stack") {
            Some(_) => Detection::Yes("LANGUAGE".to_owned()),
            None => Detection::No,
        }
    }

    /// Reads a module's tables, finds what it keeps where.
    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        let top = module.variable_address("LANGUAGE_stack");
        let top = top.ok_or_else(|| AttachError("it has no variable `LANGUAGE_stack`; build it with -g".to_owned()))?;
        Ok(Arc::new(Tables { top }))
    }
}

/// What is known of one module.
struct Tables {
    /// Address of the variable that leads to the innermost frame.
    top: u64,
}

impl Program for Tables {
    /// Prepares to walk an instance.
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(StackWalker { top: self.top }))
    }

    /// Says what a frame is, once for each key. The guest cannot be read any more.
    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(_) = frame {
            out.push(SourceFrame { function: "a function".to_owned(), ..SourceFrame::default() });
        }
    }
}

/// What reads the instances of a module that work on one memory.
struct StackWalker {
    top: u64,
}

impl Walker for StackWalker {
    /// Reads the stack of the stopped guest, innermost frame first. Runs in a signal handler.
    fn walk(&mut self, guest: &dyn GuestMemory, _wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let frame = guest.read_u32(self.top)?;
        if frame == 0 {
            return Err(Truncation::NoStack);
        }
        // Follow the frames from here. A key is a number of your own choice for a function and a line; names come later.
        out.push(frame.into())
    }
}
