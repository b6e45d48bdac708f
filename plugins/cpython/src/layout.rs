//! Where the members of CPython's structures are: the table for 3.11 and 3.12. Later releases say so themselves
//! ([`crate::debug_offsets`]).

/// Minor releases that can be walked, first and last.
pub(crate) const SUPPORTED: (u8, u8) = (11, 14);

/// Offsets in bytes, of one release, for wasm32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The minor release, `11` for 3.11.
    pub(crate) minor: u8,
    pub(crate) runtime: RuntimeLayout,
    pub(crate) interpreter: InterpreterLayout,
    pub(crate) thread: ThreadLayout,
    pub(crate) frame: FrameLayout,
    pub(crate) code: CodeLayout,
    pub(crate) text: TextLayout,
    /// Where the threads' tasks are, in releases that list them.
    pub(crate) tasks: Option<TaskLayout>,
}

/// `_PyRuntimeState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeLayout {
    /// `sizeof`, or what the structure surely does not exceed.
    pub(crate) size: u32,
    /// `interpreters.head`.
    pub(crate) interpreters_head: u32,
    /// `ceval.gil.last_holder`, where the lock is shared by all interpreters.
    pub(crate) lock_holder: Option<u32>,
}

/// `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterpreterLayout {
    pub(crate) next: u32,
    /// `threads.head`.
    pub(crate) threads_head: u32,
    /// `_gil.last_holder`, where each interpreter may have its own.
    pub(crate) lock_holder: Option<u32>,
    /// `gc.collecting`.
    pub(crate) collecting: u32,
}

/// `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadLayout {
    pub(crate) next: u32,
    pub(crate) interpreter: u32,
    pub(crate) top: Top,
    /// In releases whose innermost frame may lead nowhere.
    pub(crate) callers: Option<CallersLayout>,
}

/// What says who called a frame, besides the link in that frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallersLayout {
    /// `datastack_chunk` of `PyThreadState`, the stack of frames; `datastack_top` follows.
    pub(crate) data_stack: u32,
    /// `exc_info` of `PyThreadState`, the list of running generators.
    pub(crate) exceptions: u32,
    /// `co_nlocalsplus` of `PyCodeObject`.
    pub(crate) local_count: u32,
    /// `co_framesize` of `PyCodeObject`, in words.
    pub(crate) frame_size: u32,
    /// `stacktop` of a frame, or `stackpointer` from 3.14 on: where the values of a frame end.
    pub(crate) values_end: u32,
    /// `localsplus` of a frame, where they begin.
    pub(crate) values: u32,
}

/// What a thread's stack begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// `cframe`: one of these for each activation of the interpreter's loop, in C's stack.
    CFrame {
        /// In the thread.
        at: u32,
        /// `current_frame`, in the `_PyCFrame`.
        current: u32,
        /// `previous`, in the `_PyCFrame`.
        previous: u32,
    },
    /// `current_frame`.
    Frame {
        /// In the thread.
        at: u32,
    },
}

/// `_PyInterpreterFrame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// `f_code`, or `f_executable` from 3.13 on.
    pub(crate) code: u32,
    /// Bits of that pointer that are not part of the address.
    pub(crate) code_tags: u32,
    pub(crate) previous: u32,
    /// `prev_instr`, or `instr_ptr` from 3.13 on.
    pub(crate) instruction: u32,
    /// Whether that is the last instruction that was begun; else it is the one that runs.
    pub(crate) instruction_is_previous: bool,
    pub(crate) owner: u32,
    pub(crate) entry: Entry,
}

/// How the frames of one activation of the interpreter's loop are told from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The last one has `is_entry` set.
    Marked {
        /// Where that is.
        at: u32,
    },
    /// Another frame follows that is none of Python's and has this owner.
    Shim {
        /// `FRAME_OWNED_BY_CSTACK`, or `FRAME_OWNED_BY_INTERPRETER` from 3.14 on.
        owner: u8,
    },
}

/// `PyCodeObject`, and `PyBytesObject` for its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeLayout {
    pub(crate) first_line: u32,
    pub(crate) file_name: u32,
    pub(crate) name: u32,
    pub(crate) qualified_name: u32,
    pub(crate) line_table: u32,
    /// `co_code_adaptive`, the instructions.
    pub(crate) instructions: u32,
    /// `ob_sval` of `PyBytesObject`.
    pub(crate) bytes_data: u32,
}

/// `PyASCIIObject` and what extends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextLayout {
    /// `sizeof(PyASCIIObject)`: where the text of ASCII strings begins.
    pub(crate) ascii: u32,
    /// `sizeof(PyCompactUnicodeObject)`: where that of others begins.
    pub(crate) compact: u32,
}

/// `TaskObj` of `_asyncio`, and the coroutines that tasks run (`PyCoroObject`, which begins as `PyGenObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskLayout {
    /// `asyncio_tasks_head` of `_PyThreadStateImpl`, a list.
    pub(crate) head: u32,
    /// `task_node`, where a task is in that list.
    pub(crate) node: u32,
    /// `task_fut_waiter`.
    pub(crate) awaits: u32,
    /// `task_coro`.
    pub(crate) coroutine: u32,
    /// `gi_frame_state` of a coroutine.
    pub(crate) frame_state: u32,
    /// `gi_iframe` of a coroutine.
    pub(crate) frame: u32,
    /// `stackpointer` of a frame.
    pub(crate) stack_pointer: u32,
}

/// The minor release whose tasks are found.
pub(crate) const LISTS_TASKS: u8 = 14;

/// Those of 3.14, whose description does not have all of them: libpython3.14.so in a component of componentize-py 0.21.0, measured
/// as the rows of [`TABLE`]. Nothing is believed of what is found by them that has not the names of these types.
pub(crate) const TASKS_3_14: TaskLayout =
    TaskLayout { head: 728, node: 80, awaits: 64, coroutine: 68, frame_state: 35, frame: 36, stack_pointer: 32 };

/// `PyObject.ob_type`, which CPython has had there since 1.0 in builds without `Py_TRACE_REFS`.
pub(crate) const OBJECT_TYPE: u32 = 4;
/// `PyVarObject.ob_size`.
pub(crate) const OBJECT_SIZE: u32 = 8;
/// `PyTypeObject.tp_name`.
pub(crate) const TYPE_NAME: u32 = 12;
/// `PyASCIIObject.length` and `state`; `state` has the kind in bits 2 to 4, then `compact`, then `ascii`.
pub(crate) const TEXT_LENGTH: u32 = 8;
pub(crate) const TEXT_STATE: u32 = 16;

/// The rows, each measured by `cargo run --example layout -- MODULE` on the DWARF of a build for wasm32-wasi and, for
/// 3.11, compared with it by this crate's tests.
pub(crate) const TABLE: [Layout; 2] = [
    // 3.11.2, configured as `cargo xtask test-fixtures` does (`pyconfig.h` without threads, Zig's libc); the same in
    // wzprof's table for VMware's 3.11.3.
    Layout {
        minor: 11,
        runtime: RuntimeLayout { size: 85160, interpreters_head: 28, lock_holder: Some(200) },
        interpreter: InterpreterLayout { next: 0, threads_head: 16, lock_holder: None, collecting: 484 },
        thread: ThreadLayout {
            next: 4,
            interpreter: 8,
            top: Top::CFrame { at: 40, current: 4, previous: 8 },
            callers: None,
        },
        frame: FrameLayout {
            code: 16,
            code_tags: 0,
            previous: 24,
            instruction: 28,
            instruction_is_previous: true,
            owner: 37,
            entry: Entry::Marked { at: 36 },
        },
        code: CodeLayout {
            first_line: 48,
            file_name: 80,
            name: 84,
            qualified_name: 88,
            line_table: 92,
            instructions: 116,
            bytes_data: 16,
        },
        text: TextLayout { ascii: 24, compact: 36 },
        tasks: None,
    },
    // 3.12.1: libpython3.12.so in the wheel of componentize-py 0.17.2 for Linux x86-64 (manylinux_2_28).
    Layout {
        minor: 12,
        runtime: RuntimeLayout { size: 236_800, interpreters_head: 28, lock_holder: None },
        interpreter: InterpreterLayout { next: 0, threads_head: 64, lock_holder: Some(612), collecting: 208 },
        thread: ThreadLayout {
            next: 4,
            interpreter: 8,
            top: Top::CFrame { at: 40, current: 0, previous: 4 },
            callers: None,
        },
        frame: FrameLayout {
            code: 0,
            code_tags: 0,
            previous: 4,
            instruction: 28,
            instruction_is_previous: true,
            owner: 38,
            entry: Entry::Shim { owner: 3 },
        },
        code: CodeLayout {
            first_line: 44,
            file_name: 80,
            name: 84,
            qualified_name: 88,
            line_table: 92,
            instructions: 124,
            bytes_data: 16,
        },
        text: TextLayout { ascii: 20, compact: 28 },
        tasks: None,
    },
];

/// The row of a release that does not describe itself.
pub(crate) fn of_release(minor: u8) -> Option<Layout> {
    TABLE.into_iter().find(|layout| layout.minor == minor)
}
