//! A guest at one moment, kept to be walked without it.

use std::sync::{Arc, Mutex};
use wlprof_plugin::{
    Category, FrameKey, FrameSink, GuestMemory, Label, OutOfBounds, Program, SourceFrame, ThreadStack, Truncation,
    Walker, WasmFrame,
};

/// The most moments that are kept, and bytes of memory of all of them.
pub(super) const MOST_MOMENTS: usize = 24;
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// What a walk can see.
pub(super) struct Moment {
    pub(super) memory: Vec<u8>,
    pub(super) globals: Vec<(u32, u64)>,
    pub(super) wasm: Vec<WasmFrame>,
}

impl GuestMemory for Moment {
    fn size(&self) -> u64 {
        self.memory.len() as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        buffer.copy_from_slice(self.memory.get(start..end).ok_or(OutOfBounds)?);
        Ok(())
    }

    fn in_place(&self) -> Option<&[u8]> {
        Some(&self.memory)
    }

    fn global(&self, index: u32) -> Option<u64> {
        self.globals.iter().find(|(known, _)| *known == index).map(|(_, value)| *value)
    }
}

/// Where moments are kept. Locked in a signal handler while the guest runs, and by nobody else before it has ended.
pub(super) type Moments = Arc<Mutex<Vec<Moment>>>;

/// A program whose walkers keep some of the moments at which they are asked, farther and farther apart.
pub(super) struct MomentKeeper {
    program: Arc<dyn Program>,
    moments: Moments,
}

impl MomentKeeper {
    pub(super) fn new(program: Arc<dyn Program>) -> (Self, Moments) {
        let moments = Moments::default();
        (Self { program, moments: moments.clone() }, moments)
    }
}

impl Program for MomentKeeper {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        let (walker, program, moments) = (self.program.walker()?, self.program.clone(), self.moments.clone());
        Some(Box::new(KeepingWalker { walker, program, moments, bytes: 0, walks: 0, next: 1 }))
    }

    fn wanted_globals(&self) -> &[u32] {
        self.program.wanted_globals()
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        self.program.symbolize(frame, out);
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        self.program.categorize(frame)
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        self.program.labels(key, out);
    }

    fn warnings(&self) -> Vec<String> {
        self.program.warnings()
    }
}

struct KeepingWalker {
    walker: Box<dyn Walker>,
    program: Arc<dyn Program>,
    moments: Moments,
    bytes: u64,
    walks: u64,
    next: u64,
}

impl KeepingWalker {
    fn keep(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame]) {
        let Ok(mut moments) = self.moments.try_lock() else { return };
        self.bytes += guest.size();
        if moments.len() >= MOST_MOMENTS || self.bytes > MOST_BYTES {
            return;
        }
        let mut memory = vec![0; guest.size() as usize];
        if guest.read(0, &mut memory).is_ok() {
            let global = |&index: &u32| Some((index, guest.global(index)?));
            let globals = self.program.wanted_globals().iter().filter_map(global).collect();
            moments.push(Moment { memory, globals, wasm: wasm.to_vec() });
        }
    }
}

impl Walker for KeepingWalker {
    fn walks_without_allocating(&self) -> bool {
        self.walker.walks_without_allocating()
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let walked = self.walker.walk(guest, wasm, out);
        // Where there is something to see.
        if !out.is_empty() && out.may_allocate() {
            self.walks += 1;
            if self.walks == self.next {
                self.next += self.walks / 3 + 1;
                self.keep(guest, wasm);
            }
        }
        walked
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        self.walker.threads(guest, wasm, out);
    }
}
