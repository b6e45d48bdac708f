//! Recorders and recordings for tests, without a guest.

use crate::{
    Journal, LanguageNames, Meta, Module, ModuleId, Names, RawRecording, Recorder, Recording, TickCounts, TrackId,
};
use wlprof_plugin::{Label, SourceFrame};

/// Labels that are called by their key.
struct Keys;

impl LanguageNames for Keys {
    fn own_frame(&mut self, _: ModuleId, _: u64, _: &mut Vec<SourceFrame>) {}

    fn labels(&mut self, _: ModuleId, key: u64) -> Vec<Label> {
        vec![Label { name: "key".into(), value: key.to_string() }]
    }

    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Closes the recorder and reads what it has written.
pub fn finish(recorder: Recorder, names: &mut dyn Names) -> Recording {
    let (count, _) = recorder.sampled();
    let ticks = TickCounts { fired: count, sampled: count, ..TickCounts::default() };
    let journal = recorder.close(Meta::default(), ticks, &mut Keys);
    RawRecording::read(&mut *journal.into_reader().unwrap()).unwrap().named(names)
}

/// The thread of the recorders here.
pub const TRACK: TrackId = TrackId(0);

/// A recorder with a thread, for frames of no module.
pub fn recorder() -> Recorder {
    with_modules(0)
}

/// A recorder with a thread, for frames of so many modules.
pub fn with_modules(count: usize) -> Recorder {
    let module = Module { name: String::new(), build_id: String::new() };
    let mut recorder = Recorder::new(vec![module; count], Meta::default(), Journal::default());
    let store = recorder.store("guest");
    recorder.track(store, "guest", 1);
    recorder
}
