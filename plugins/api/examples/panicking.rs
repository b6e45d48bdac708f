//! A plugin that panics in what the variable `PANICS_IN` names, for the tests of how wlprof takes that. Without it, every
//! stack has some frames called `one`, on top of those of wasm.

use wlprof_plugin::{
    AttachError, Category, Detection, FrameKey, FrameSink, GuestMemory, Label, Language, ModuleView, Program,
    SourceFrame, Truncation, Walker, WasmFrame,
};

use std::sync::Arc;

wlprof_plugin::export_plugin!("panicking" => Panicking);

struct Panicking;

fn panic_in(activity: &str) {
    assert!(std::env::var("PANICS_IN").as_deref() != Ok(activity), "asked to, in {activity}");
}

impl Language for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }

    fn detect(&self, _module: &dyn ModuleView) -> Detection {
        panic_in("detect");
        Detection::Yes("panicking 1".to_owned())
    }

    fn attach(&self, _module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        panic_in("attach");
        Ok(Arc::new(Frames))
    }
}

struct Frames;

impl Program for Frames {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        panic_in("walker");
        Some(Box::new(Stacks))
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(_) = frame {
            panic_in("symbolize");
            out.push(SourceFrame { function: "one".to_owned(), ..SourceFrame::default() });
        }
    }

    fn categorize(&self, _frame: &SourceFrame) -> Option<Category> {
        panic_in("categorize");
        None
    }

    fn labels(&self, _key: u64, _out: &mut Vec<Label>) {
        panic_in("labels");
    }

    fn warnings(&self) -> Vec<String> {
        panic_in("warnings");
        Vec::new()
    }
}

struct Stacks;

impl Walker for Stacks {
    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        panic_in("walk");
        // Some keys, so that there is more than one frame to name.
        let key = guest.size() % 7;
        out.set_labels(key);
        (key..key + 5).try_for_each(|key| out.push(key))?;
        (0..wasm.len()).try_for_each(|index| out.push_wasm(index))
    }
}
