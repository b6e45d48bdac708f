//! Lets go of what is in no sample that is kept: a process that is sampled for weeks makes stacks, threads and modules without end, and windows
//! are open for minutes.

use crate::session::Session;
use crate::stand_in;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_recording::HeldNumbers;

/// Images that have gone and whose modules are kept, since equal ones may come again.
const MAX_RETIRED: usize = 256;

/// The smallest module, in place of one that has been let go of.
const NOTHING: &[u8] = b"\0asm\x01\0\0\0";

impl Session {
    /// Whether more is kept than is worth it. Nothing is let go of where all samples are kept.
    pub(crate) fn is_overgrown(&mut self) -> bool {
        let recorder = &mut self.samples.recorder;
        // Those of open windows stay, however often that is tried.
        recorder.is_overgrown()
            || (self.retired_count() > MAX_RETIRED.max(self.leaving.len()) && self.keeps_windows_only())
    }

    /// Lets go of what is in no sample that is kept. No thread is being sampled. Returns whether it could.
    pub(crate) fn compact(&mut self) -> bool {
        let Some(numbers) = self.samples.recorder.compact(HeldNumbers::default()) else { return false };
        self.samples.renumber(&numbers);
        // Who names frames of another process asks for its modules later than for its frames: their ids stay.
        if self.reader.process.is_own() {
            self.forget_modules();
        }
        true
    }

    fn retired_count(&self) -> usize {
        self.retired.values().map(Vec::len).sum::<usize>()
    }

    fn keeps_windows_only(&mut self) -> bool {
        self.reader.process.is_own() && self.samples.recorder.forgets_before_ns().is_some()
    }

    fn forget_modules(&mut self) {
        self.leaving.extend(self.retired.drain().flat_map(|(_, all)| all).flatten());
        let forgotten = self.samples.recorder.forget_modules(&mut self.leaving);
        self.naming.forget_modules(&forgotten);
        self.samples.forget_modules(&forgotten);
        for id in forgotten {
            let nothing = ModuleImage::parse(NOTHING.to_vec(), "").expect("it is a module");
            let forgotten = std::mem::replace(&mut self.samples.modules[id as usize], Arc::new(nothing));
            self.programs[id as usize] = None;
            self.siblings[id as usize].clear();
            if forgotten.is_stand_in() {
                self.room.1 = (self.room.1 + stand_in::functions_in(&forgotten)).min(stand_in::MAX_ALL_FUNCTIONS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{FoundImage, tests::image};
    use crate::options::Options;
    use crate::process::Process;
    use wlprof_recording::{Journal, Origin, Sample, StackId, State};
    use wlprof_walk::MappedImage;

    fn session(journal: Journal) -> Session {
        let own = Process::own().unwrap();
        let mut session = Session::new(own, Vec::new(), journal, Options::default()).unwrap();
        session.samples.recorder.set_small_limits();
        session
    }

    /// An image that no other is equal to.
    fn found(number: usize) -> FoundImage {
        let (name, release) = (String::new(), "48.0.8".to_owned());
        let bytes = Arc::new(image(&["wasm[0]::function[0]", &format!("wasm[0]::function[1]::f{number}")]));
        FoundImage { image: MappedImage { bytes, address: (number + 1) << 32, modules: Vec::new() }, release, name }
    }

    fn stack(session: &mut Session, module: u32, function: u32) -> StackId {
        let frame = session.samples.recorder.frame(Origin::Wasm { module, function, code_offset: 0 });
        session.samples.recorder.stack([frame]).unwrap()
    }

    /// A sample of a thread that nobody has seen before, in the module of that id.
    fn sample(session: &mut Session, module: u32, number: u32) {
        let now_ns = session.begun.elapsed().as_nanos() as u64;
        let stack = stack(session, module, number);
        let store = session.samples.recorder.store("guest");
        let track = session.samples.recorder.track(store, "", u64::from(number));
        let sample =
            Sample { time_ns: now_ns, period_ns: 1, cpu_delta_ns: 1, stack, state: State::Guest, labels: None };
        session.samples.recorder.sample(track, now_ns, sample);
        session.samples.recorder.flush(now_ns);
    }

    #[test]
    fn modules_threads_and_stacks_of_weeks_take_a_bounded_room() {
        let mut session = session(Journal::of_windows());
        let room = session.room.1;
        let mut compacted = 0;
        for number in 0..1500 {
            let found = found(number);
            session.add(&found);
            let id = session.images[&found.image.address].1[0];
            sample(&mut session, id, number as u32);
            session.retire(found.image.address);
            if session.is_overgrown() {
                assert!(session.compact());
                compacted += 1;
            }
        }
        assert!(compacted > 2, "{compacted}");
        let modules = session.modules().len();
        assert!(modules <= 2 * MAX_RETIRED + 2 && session.retired_count() <= MAX_RETIRED + 1, "{modules}");
        assert!(session.samples.recorder.stack_count() < 1000, "{}", session.samples.recorder.stack_count());
        assert!(session.room.1 > room - 4 * MAX_RETIRED as u32);
    }

    #[test]
    fn what_an_open_window_has_stays() {
        let mut session = session(Journal::of_windows());
        let window = session.open_window(wlprof_recording::Clock::Cpu);
        let found = found(0);
        session.add(&found);
        sample(&mut session, 0, 1);
        let before = session.modules()[0].clone();
        session.retire(found.image.address);
        assert!(session.compact());
        assert!(Arc::ptr_eq(&session.modules()[0], &before));
        session.close_window(window);
        assert!(session.compact());
        assert!(!Arc::ptr_eq(&session.modules()[0], &before), "no frame is of it any more");
    }

    #[test]
    fn nothing_of_a_recording_is_let_go_of() {
        let mut session = session(Journal::default());
        for number in 0..MAX_RETIRED + 2 {
            session.add(&found(number));
            session.retire((number + 1) << 32);
        }
        assert!(!session.is_overgrown());
        assert!(!session.compact());
        assert_eq!(session.modules().len(), MAX_RETIRED + 2);
    }
}
