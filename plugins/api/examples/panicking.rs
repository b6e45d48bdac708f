//! A plugin that panics in what the variable `PANICS_IN` names, for the tests of how wlprof takes that. Without it, every
//! stack is one frame, `one`.

use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, Language, ModuleView, SourceFrame, WalkEnd, Walker,
    WasmFrame,
};

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

    fn attach(&self, _module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
        panic_in("attach");
        Ok(Box::new(Frames))
    }
}

struct Frames;

impl Walker for Frames {
    fn reads_guest(&self) -> bool {
        true
    }

    fn walk(&mut self, guest: &dyn GuestMemory, _wasm: &[WasmFrame], out: &mut FrameSink) -> WalkEnd {
        panic_in("walk");
        // Some keys, so that there is more than one frame to name.
        let key = guest.size() % 7;
        if (key..key + 5).all(|key| out.push(key)) { WalkEnd::Complete } else { WalkEnd::TooDeep }
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(_) = frame {
            panic_in("symbolize");
            out.push(SourceFrame { function: "one".to_owned(), ..SourceFrame::default() });
        }
    }
}
