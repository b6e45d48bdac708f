//! A wlprof plugin for LANGUAGE. See README.md.
#![deny(unsafe_code)]

use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, Language, ModuleView, SourceFrame, Truncation, Walker,
    WasmFrame,
};

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

    /// Prepares to walk a module: reads its tables, finds what it keeps where.
    fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
        let top = module.variable_address("LANGUAGE_stack");
        let top = top.ok_or_else(|| AttachError("it has no variable `LANGUAGE_stack`; build it with -g".to_owned()))?;
        Ok(Box::new(StackWalker { top }))
    }
}

/// What is known of one module.
struct StackWalker {
    /// Address of the variable that leads to the innermost frame.
    top: u64,
}

impl Walker for StackWalker {
    fn reads_guest(&self) -> bool {
        true
    }

    /// Reads the stack of the stopped guest, innermost frame first. Runs in a signal handler.
    fn walk(&mut self, guest: &dyn GuestMemory, _wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let frame = guest.read_u32(self.top)?;
        if frame == 0 {
            return Err(Truncation::NoStack);
        }
        // Follow the frames from here. A key is a number of your own choice for a function and a line; names come later.
        out.push(frame.into())
    }

    /// Says what a frame is, once for each key, after the samples. The guest cannot be read any more.
    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(_) = frame {
            out.push(SourceFrame { function: "a function".to_owned(), ..SourceFrame::default() });
        }
    }
}
