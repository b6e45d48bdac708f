//! A guest at one moment, kept to be walked without it.

use std::sync::{Arc, Mutex};
use wlprof_plugin::{
    Category, FrameKey, FrameSink, GuestMemory, Label, OutOfBounds, SourceFrame, ThreadStack, Truncation, Walker,
    WasmFrame,
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

/// A walker that keeps some of the moments at which it is asked, farther and farther apart.
pub(super) struct Keeping {
    walker: Box<dyn Walker>,
    moments: Moments,
    bytes: u64,
    walks: u64,
    next: u64,
}

impl Keeping {
    pub(super) fn new(walker: Box<dyn Walker>) -> (Self, Moments) {
        let moments = Moments::default();
        (Self { walker, moments: moments.clone(), bytes: 0, walks: 0, next: 1 }, moments)
    }

    fn keep(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame]) {
        let Ok(mut moments) = self.moments.try_lock() else { return };
        self.bytes += guest.size();
        if moments.len() >= MOST_MOMENTS || self.bytes > MOST_BYTES {
            return;
        }
        let mut memory = vec![0; guest.size() as usize];
        if guest.read(0, &mut memory).is_ok() {
            let global = |&index: &u32| Some((index, guest.global(index)?));
            let globals = self.walker.wanted_globals().iter().filter_map(global).collect();
            moments.push(Moment { memory, globals, wasm: wasm.to_vec() });
        }
    }
}

impl Walker for Keeping {
    fn reads_guest(&self) -> bool {
        self.walker.reads_guest()
    }

    fn walks_without_allocating(&self) -> bool {
        self.walker.walks_without_allocating()
    }

    fn fresh(&self) -> Option<Box<dyn Walker>> {
        self.walker.fresh()
    }

    fn wanted_globals(&self) -> &[u32] {
        self.walker.wanted_globals()
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

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        self.walker.symbolize(frame, out);
    }

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        self.walker.categorize(frame)
    }

    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        self.walker.labels(key, out);
    }

    fn warnings(&self) -> Vec<String> {
        self.walker.warnings()
    }
}
