//! Guests made up for tests: memory with as much of an interpreter as a walk reads, of any release.

use crate::{
    debug_offsets::COOKIE,
    layout::{
        self, CallersLayout, CodeLayout, Entry, FrameLayout, InterpreterLayout, Layout, RuntimeLayout, TextLayout,
        ThreadLayout, Top,
    },
};
use wlprof_plugin::testing::Frozen;

/// Where the runtime is, and the thread in its interpreter; objects follow.
pub(crate) const RUNTIME: u32 = 0x1_0000;
const INTERPRETER: u32 = RUNTIME + 0x6000;
const THREAD: u32 = INTERPRETER + 0x1800;
const OBJECTS: u32 = RUNTIME + 0x10_0000;
const SIZE: usize = 0x80_0000;

/// 3.13.5 and 3.14.0 as their own descriptions give them: the values measured in the DWARF of the fixture, and of
/// libpython3.14.so in the wheel of componentize-py 0.19.3.
fn described(minor: u8) -> Layout {
    let is_14 = minor == 14;
    Layout {
        minor,
        runtime: RuntimeLayout {
            size: if is_14 { 166_624 } else { 150_528 },
            interpreters_head: if is_14 { 796 } else { 620 },
            lock_holder: None,
        },
        interpreter: InterpreterLayout {
            next: if is_14 { 3648 } else { 3644 },
            threads_head: 3704,
            lock_holder: Some(if is_14 { 3980 } else { 3964 }),
            collecting: if is_14 { 3856 } else { 3852 },
        },
        thread: ThreadLayout {
            next: 4,
            interpreter: 8,
            top: Top::Frame { at: 52 },
            callers: Some(CallersLayout {
                data_stack: 144,
                exceptions: 76,
                local_count: 48,
                frame_size: 52,
                values_end: 32,
                values: 40,
            }),
        },
        frame: FrameLayout {
            code: 0,
            code_tags: if is_14 { 3 } else { 0 },
            previous: 4,
            instruction: 28,
            instruction_is_previous: false,
            owner: 38,
            entry: Entry::Shim { owner: 3 },
        },
        code: CodeLayout {
            first_line: 44,
            file_name: 80,
            name: 84,
            qualified_name: 88,
            line_table: 92,
            instructions: if is_14 { 128 } else { 124 },
            bytes_data: 16,
        },
        text: TextLayout { ascii: 20, compact: 28 },
        tasks: is_14.then_some(layout::TASKS_3_14),
    }
}

/// The layouts of all releases.
pub(crate) fn layouts() -> Vec<Layout> {
    layout::TABLE.into_iter().chain([13, 14].map(described)).collect()
}

/// The words of `_Py_DebugOffsets` of 3.13.5 and 3.14.0, those that are read; others are 0.
fn description(layout: &Layout) -> Vec<u64> {
    let is_14 = layout.minor == 14;
    let mut words = vec![0; 96];
    words[0] = u64::from_le_bytes(*COOKIE);
    words[1] = if is_14 { 0x030e_00f0 } else { 0x030d_05f0 };
    // By position, so that the lists of names are tested too.
    let values: &[(usize, u32)] = if is_14 {
        &[
            (3, 166_624),
            (5, 796),
            (6, 115_472),
            (8, 3648),
            (9, 3704),
            (11, 3740),
            (19, 3980),
            (22, 704),
            (24, 4),
            (25, 8),
            (26, 52),
            (29, 144),
            (31, 44),
            (32, 4),
            (34, 28),
            (35, 40),
            (36, 38),
            (39, 132),
            (40, 80),
            (41, 84),
            (42, 88),
            (43, 92),
            (44, 44),
            (48, 128),
            (50, 8),
            (51, 4),
            (52, 172),
            (53, 12),
            (74, 20),
            (75, 8),
            (76, 16),
            (77, 32),
            (78, 16),
            (79, 8),
            (80, 20),
            (81, 156),
            (82, 116),
        ]
    } else {
        &[
            (3, 150_528),
            (5, 620),
            (6, 99_800),
            (8, 3644),
            (9, 3704),
            (10, 3736),
            (18, 3964),
            (19, 184),
            (21, 4),
            (22, 8),
            (23, 52),
            (26, 144),
            (28, 44),
            (29, 4),
            (31, 28),
            (32, 40),
            (33, 38),
            (34, 128),
            (35, 80),
            (36, 84),
            (37, 88),
            (38, 92),
            (39, 44),
            (43, 124),
            (44, 8),
            (45, 4),
            (46, 172),
            (47, 12),
            (64, 20),
            (65, 8),
            (66, 16),
            (67, 32),
            (68, 16),
            (69, 8),
            (70, 20),
            (71, 156),
            (72, 116),
        ]
    };
    for &(index, value) in values {
        words[index] = value.into();
    }
    words
}

/// A frame to be put into memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFrame {
    pub(crate) code: u32,
    /// The code unit that runs; `None` before the first.
    pub(crate) unit: Option<u32>,
}

/// A guest under construction.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) frozen: Frozen,
    pub(crate) layout: Layout,
    next: u32,
    code_type: u32,
}

impl Guest {
    /// An interpreter with a thread that runs nothing.
    pub(crate) fn new(layout: Layout) -> Self {
        let frozen = Frozen::new(vec![0; SIZE]);
        let mut guest = Self { frozen, layout, next: OBJECTS, code_type: 0 };
        if layout.minor >= 13 {
            for (index, word) in description(&layout).into_iter().enumerate() {
                guest.frozen.memory[RUNTIME as usize + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        let head = RUNTIME + layout.runtime.interpreters_head;
        guest.set(head, INTERPRETER);
        guest.set(head + 4, INTERPRETER);
        guest.set(INTERPRETER + layout.interpreter.threads_head, THREAD);
        guest.set(THREAD + layout.thread.interpreter, INTERPRETER);
        let name = guest.allocate(8);
        guest.frozen.memory[name as usize..][..5].copy_from_slice(b"code\0");
        guest.code_type = guest.allocate(64);
        guest.set(guest.code_type + layout::TYPE_NAME, name);
        if let Top::CFrame { at, .. } = layout.thread.top {
            let root = guest.allocate(12);
            guest.set(THREAD + at, root);
        }
        if let Some(callers) = layout.thread.callers {
            guest.chunk(0x4_0000);
            let own = guest.allocate(8);
            guest.set(THREAD + callers.exceptions, own);
        }
        guest
    }

    pub(crate) fn allocate(&mut self, size: u32) -> u32 {
        let address = self.next;
        self.next += size.next_multiple_of(8);
        address
    }

    pub(crate) fn set(&mut self, address: u32, value: u32) {
        self.frozen.memory[address as usize..][..4].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn word(&self, address: u32) -> u32 {
        u32::from_le_bytes(self.frozen.memory[address as usize..][..4].try_into().unwrap())
    }

    /// A string of the width that CPython would choose.
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        let widest = text.chars().max().map_or(0, u32::from);
        let width = if widest < 0x100 {
            1
        } else if widest < 0x1_0000 {
            2
        } else {
            4
        };
        let is_ascii = text.is_ascii();
        let TextLayout { ascii, compact } = self.layout.text;
        let data = if is_ascii { ascii } else { compact };
        let length = text.chars().count() as u32;
        let address = self.allocate(data + length * width + 4);
        self.set(address + layout::TEXT_LENGTH, length);
        self.set(address + layout::TEXT_STATE, width << 2 | 1 << 5 | u32::from(is_ascii) << 6);
        for (index, character) in text.chars().enumerate() {
            let bytes = u32::from(character).to_le_bytes();
            let at = (address + data) as usize + index * width as usize;
            self.frozen.memory[at..at + width as usize].copy_from_slice(&bytes[..width as usize]);
        }
        address
    }

    /// A code object of 100 code units, each on a line of its own.
    pub(crate) fn code(&mut self, file: &str, name: &str, first_line: u32) -> u32 {
        // Of one unit each, without columns, one line on.
        let table: Vec<u8> = [0x80 | 13 << 3, 2].repeat(100);
        let bytes = self.allocate(16 + table.len() as u32 + 64);
        self.set(bytes + 8, table.len() as u32);
        self.frozen.memory[bytes as usize + 16..][..table.len()].copy_from_slice(&table);
        let (file, name) = (self.text(file), self.text(name));
        let layout = self.layout.code;
        let code = self.allocate(layout.instructions + 200);
        for (at, value) in [
            (layout::OBJECT_TYPE, self.code_type),
            (layout::OBJECT_SIZE, 100),
            (layout.first_line, first_line),
            (layout.file_name, file),
            (layout.name, name),
            (layout.qualified_name, name),
            (layout.line_table, bytes),
        ] {
            self.set(code + at, value);
        }
        if let Some(callers) = self.layout.thread.callers {
            // As large as frames are made here.
            self.set(code + callers.frame_size, 12);
            self.set(code + callers.local_count, 1);
        }
        code
    }

    /// Runs an activation of the loop: outermost frame first.
    pub(crate) fn activate(&mut self, frames: &[NewFrame]) -> u32 {
        let mut top = self.top();
        let outer_top = top;
        if let Entry::Shim { owner } = self.layout.frame.entry {
            top = self.frame(NewFrame { code: 0, unit: Some(0) }, top);
            self.frozen.memory[(top + self.layout.frame.owner) as usize] = owner;
        }
        for (index, &frame) in frames.iter().enumerate() {
            top = self.frame(frame, top);
            if let Entry::Marked { at } = self.layout.frame.entry {
                self.frozen.memory[(top + at) as usize] = u8::from(index == 0);
            }
        }
        match self.layout.thread.top {
            Top::Frame { at } => self.set(THREAD + at, top),
            Top::CFrame { at, current, previous } => {
                let cframe = self.allocate(12);
                self.set(cframe + current, top);
                self.set(cframe + previous, self.word(THREAD + at));
                self.set(THREAD + at, cframe);
            }
        }
        assert_ne!(top, outer_top);
        top
    }

    fn frame(&mut self, new: NewFrame, previous: u32) -> u32 {
        let layout = self.layout.frame;
        let frame = match self.layout.thread.callers {
            Some(callers) if new.code != 0 => {
                let top = THREAD + callers.data_stack + 4;
                self.set(top, self.word(top) + 48);
                self.word(top) - 48
            }
            _ => self.allocate(48),
        };
        let tag = u32::from(layout.code_tags != 0 && new.code != 0);
        self.set(frame + layout.code, new.code | tag);
        self.set(frame + layout.previous, previous);
        let start = (new.code + self.layout.code.instructions) as i64;
        let before = if layout.instruction_is_previous { -2 } else { 0 };
        let at = new.unit.map_or(before, |unit| 2 * i64::from(unit));
        self.set(frame + layout.instruction, (start + at) as u32);
        if let Some(callers) = self.layout.thread.callers {
            let with_values = if self.layout.minor == 13 { u32::MAX } else { frame + callers.values + 4 };
            self.set(frame + callers.values_end, with_values);
        }
        frame
    }

    /// Where the thread keeps the chunk of its stack of frames, and after it that one's end.
    pub(crate) fn data_stack(&self) -> u32 {
        THREAD + self.layout.thread.callers.unwrap().data_stack
    }

    /// Where the thread keeps the first item of the list of running generators.
    pub(crate) fn exceptions(&self) -> u32 {
        THREAD + self.layout.thread.callers.unwrap().exceptions
    }

    /// Begins a chunk of the stack of frames.
    pub(crate) fn chunk(&mut self, size: u32) {
        let at = self.data_stack();
        let chunk = self.allocate(16 + size);
        let previous = self.word(at);
        self.set(chunk, previous);
        if previous != 0 {
            let top = self.word(at + 4);
            self.set(previous + 8, (top - previous - 12) / 4);
        }
        self.set(at, chunk);
        self.set(at + 4, chunk + if previous == 0 { 16 } else { 12 });
    }

    /// Resumes a generator in the activation that runs. Gives its frame.
    pub(crate) fn resume(&mut self, frame: NewFrame) -> u32 {
        let Top::Frame { at } = self.layout.thread.top else { panic!("generators are called in another way") };
        let exceptions = self.exceptions();
        let on_stack = self.frame(frame, self.word(THREAD + at)) as usize;
        self.set(self.data_stack() + 4, on_stack as u32);
        let generator = self.allocate(36 + 48);
        self.frozen.memory.copy_within(on_stack..on_stack + 48, generator as usize + 36);
        self.frozen.memory[(generator + 36 + self.layout.frame.owner) as usize] = 1;
        self.set(generator + 24, self.word(exceptions));
        self.set(exceptions, generator + 20);
        self.set(THREAD + at, generator + 36);
        generator + 36
    }

    /// Links a generator, into which an exception is thrown, to the frame that runs.
    pub(crate) fn throw_through(&mut self, frame: NewFrame) -> u32 {
        let frame = self.frame(frame, self.top());
        self.frozen.memory[(frame + self.layout.frame.owner) as usize] = 1;
        if let Entry::Marked { at } = self.layout.frame.entry {
            self.frozen.memory[(frame + at) as usize] = 1;
        }
        match self.layout.thread.top {
            Top::Frame { at } => self.set(THREAD + at, frame),
            Top::CFrame { at, current, .. } => self.set(self.word(THREAD + at) + current, frame),
        }
        frame
    }

    /// Has the function at `frame` return: it has no values, and the frame that it was called by runs.
    pub(crate) fn give_back(&mut self, frame: u32) {
        let Top::Frame { at } = self.layout.thread.top else { panic!("functions are called in another way") };
        let callers = self.layout.thread.callers.unwrap();
        let without_values = if self.layout.minor == 13 { 0 } else { frame + callers.values };
        self.set(frame + callers.values_end, without_values);
        self.set(THREAD + at, self.word(frame + self.layout.frame.previous));
    }

    /// Calls a function in the activation that runs.
    pub(crate) fn call(&mut self, frame: NewFrame) -> u32 {
        let Top::Frame { at } = self.layout.thread.top else { panic!("functions are called in another way") };
        let frame = self.frame(frame, self.word(THREAD + at));
        self.set(THREAD + at, frame);
        frame
    }

    /// An object of a type of that name.
    fn object(&mut self, type_name: &str, size: u32) -> u32 {
        let name = self.allocate(type_name.len() as u32 + 1);
        self.frozen.memory[name as usize..][..type_name.len()].copy_from_slice(type_name.as_bytes());
        let of = self.allocate(64);
        self.set(of + layout::TYPE_NAME, name);
        let object = self.allocate(size);
        self.set(object + layout::OBJECT_TYPE, of);
        object
    }

    /// A task of the thread's that awaits an object of the type `awaited`, in these coroutines, the outermost first. Gives those, the
    /// innermost first, and the task.
    pub(crate) fn task(&mut self, awaited: &str, frames: &[NewFrame]) -> (Vec<u32>, u32) {
        let layout = self.layout.tasks.unwrap();
        let awaited = self.object(awaited, 16);
        let mut inner = self.object("_asyncio.FutureIter", 16);
        let mut coroutines = Vec::new();
        for &frame in frames.iter().rev() {
            let frame = self.frame(frame, 0) as usize;
            let coroutine = self.object("coroutine", layout.frame + 48);
            let address = coroutine + layout.frame;
            self.frozen.memory.copy_within(frame..frame + 48, address as usize);
            let stack = self.allocate(4);
            self.set(stack, inner | 1);
            self.set(address + layout.stack_pointer, stack + 4);
            self.frozen.memory[(coroutine + layout.frame_state) as usize] = 0xff;
            coroutines.push(coroutine);
            inner = coroutine;
        }
        let task = self.object("_asyncio.Task", 96);
        self.set(task + layout.awaits, awaited);
        self.set(task + layout.coroutine, inner);
        let head = THREAD + layout.head;
        let next = self.word(head);
        self.set(task + layout.node, if next == 0 { head } else { next });
        self.set(head, task + layout.node);
        (coroutines, task)
    }

    /// The innermost frame.
    pub(crate) fn top(&self) -> u32 {
        match self.layout.thread.top {
            Top::Frame { at } => self.word(THREAD + at),
            Top::CFrame { at, current, .. } => self.word(self.word(THREAD + at) + current),
        }
    }

    /// Where the thread keeps its innermost frame, or the `_PyCFrame` that does.
    pub(crate) fn top_slot(&self) -> u32 {
        let (Top::Frame { at } | Top::CFrame { at, .. }) = self.layout.thread.top;
        THREAD + at
    }
}
