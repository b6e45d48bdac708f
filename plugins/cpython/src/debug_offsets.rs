//! `_Py_DebugOffsets`: the description of its structures that CPython keeps at the start of `_PyRuntime` since 3.13, for
//! debuggers. The fields differ from minor release to minor release; each is a 64-bit number, on wasm32 too.

use crate::layout::{
    CallersLayout, CodeLayout, Entry, FrameLayout, InterpreterLayout, LISTS_TASKS, Layout, RuntimeLayout, TASKS_3_14,
    TextLayout, ThreadLayout, Top,
};
use wlprof_plugin::GuestMemory;

/// What the description begins with.
pub(crate) const COOKIE: &[u8; 8] = b"xdebugpy";

/// The fields of 3.13, in order (`Include/internal/pycore_runtime.h` of 3.13.5). Structures begin with their `size`.
const FIELDS_3_13: &str = "cookie version free_threaded \
    runtime.size runtime.finalizing runtime.interpreters_head \
    interpreter.size interpreter.id interpreter.next interpreter.threads_head interpreter.gc \
    interpreter.imports_modules interpreter.sysdict interpreter.builtins interpreter.ceval_gil \
    interpreter.gil interpreter.gil_enabled interpreter.gil_locked interpreter.gil_holder \
    thread.size thread.prev thread.next thread.interp thread.current_frame thread.thread_id thread.native_thread_id \
    thread.datastack_chunk thread.status \
    frame.size frame.previous frame.executable frame.instr_ptr frame.localsplus frame.owner \
    code.size code.filename code.name code.qualname code.linetable code.firstlineno code.argcount \
    code.localsplusnames code.localspluskinds code.co_code_adaptive \
    object.size object.ob_type \
    type.size type.tp_name type.tp_repr type.tp_flags \
    tuple.size tuple.ob_item tuple.ob_size list.size list.ob_item list.ob_size dict.size dict.ma_keys dict.ma_values \
    float.size float.ob_fval long.size long.lv_tag long.ob_digit \
    bytes.size bytes.ob_size bytes.ob_sval \
    unicode.size unicode.state unicode.length unicode.asciiobject_size \
    gc.size gc.collecting";

/// The fields of 3.14, in order (`Include/internal/pycore_debug_offsets.h` of 3.14.0).
const FIELDS_3_14: &str = "cookie version free_threaded \
    runtime.size runtime.finalizing runtime.interpreters_head \
    interpreter.size interpreter.id interpreter.next interpreter.threads_head interpreter.threads_main \
    interpreter.gc interpreter.imports_modules interpreter.sysdict interpreter.builtins interpreter.ceval_gil \
    interpreter.gil interpreter.gil_enabled interpreter.gil_locked interpreter.gil_holder \
    interpreter.code_object_generation interpreter.tlbc_generation \
    thread.size thread.prev thread.next thread.interp thread.current_frame thread.thread_id thread.native_thread_id \
    thread.datastack_chunk thread.status \
    frame.size frame.previous frame.executable frame.instr_ptr frame.localsplus frame.owner frame.stackpointer \
    frame.tlbc_index \
    code.size code.filename code.name code.qualname code.linetable code.firstlineno code.argcount \
    code.localsplusnames code.localspluskinds code.co_code_adaptive code.co_tlbc \
    object.size object.ob_type \
    type.size type.tp_name type.tp_repr type.tp_flags \
    tuple.size tuple.ob_item tuple.ob_size list.size list.ob_item list.ob_size \
    set.size set.used set.table set.mask dict.size dict.ma_keys dict.ma_values \
    float.size float.ob_fval long.size long.lv_tag long.ob_digit \
    bytes.size bytes.ob_size bytes.ob_sval \
    unicode.size unicode.state unicode.length unicode.asciiobject_size \
    gc.size gc.collecting";

/// The most that the structures may claim to be: the runtime and an interpreter, and all others.
const LARGEST: (u64, u64) = (1 << 24, 1 << 12);

/// What was found where a description may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// `PY_VERSION_HEX`.
    pub(crate) version: u32,
    /// Whether the build has no global lock, which changes the layout of all objects.
    pub(crate) free_threaded: bool,
}

/// Reads the start of the description at `address`, if it is one.
pub(crate) fn describe(guest: &dyn GuestMemory, address: u64) -> Option<Description> {
    let mut words = [0; 24];
    guest.read(address, &mut words).ok()?;
    head(&words)
}

/// The description that `bytes` begin with.
pub(crate) fn head(bytes: &[u8]) -> Option<Description> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if !bytes.starts_with(COOKIE) || word(8)? >> 24 != 3 {
        return None;
    }
    Some(Description { version: word(8)? as u32, free_threaded: word(16)? != 0 })
}

/// Reads the description at `address` of a guest of that minor release; `None` if it is not believable.
pub(crate) fn read(guest: &dyn GuestMemory, address: u64, minor: u8) -> Option<Layout> {
    let names = match minor {
        13 => FIELDS_3_13,
        14 => FIELDS_3_14,
        _ => return None,
    };
    let description = describe(guest, address)?;
    if description.version >> 16 & 0xff != u32::from(minor) || description.free_threaded {
        return None;
    }
    let fields = Fields { guest, address, names };
    let gc = fields.offset("interpreter", "gc", 4)?.checked_add(fields.offset("gc", "collecting", 4)?)?;
    let ascii = fields.offset("unicode", "asciiobject_size", 4)?;
    // Those that have never been elsewhere are not taken from the guest, only compared.
    let as_ever = fields.offset("object", "ob_type", 4)? == crate::layout::OBJECT_TYPE
        && fields.offset("type", "tp_name", 4)? == crate::layout::TYPE_NAME
        && fields.offset("bytes", "ob_size", 4)? == crate::layout::OBJECT_SIZE
        && fields.offset("unicode", "length", 4)? == crate::layout::TEXT_LENGTH
        && fields.offset("unicode", "state", 2)? == crate::layout::TEXT_STATE;
    as_ever.then_some(())?;
    let current_frame = fields.offset("thread", "current_frame", 4)?;
    let instruction = fields.offset("frame", "instr_ptr", 4)?;
    let first_line = fields.offset("code", "firstlineno", 4)?;
    Some(Layout {
        minor,
        runtime: RuntimeLayout {
            size: fields.size("runtime")?,
            interpreters_head: fields.offset("runtime", "interpreters_head", 4)?,
            lock_holder: None,
        },
        interpreter: InterpreterLayout {
            next: fields.offset("interpreter", "next", 4)?,
            threads_head: fields.offset("interpreter", "threads_head", 4)?,
            lock_holder: Some(fields.offset("interpreter", "gil_holder", 4)?),
            collecting: gc,
        },
        thread: ThreadLayout {
            next: fields.offset("thread", "next", 4)?,
            interpreter: fields.offset("thread", "interp", 4)?,
            top: Top::Frame { at: current_frame },
            callers: Some(CallersLayout {
                data_stack: fields.offset("thread", "datastack_chunk", 4)?,
                values: fields.offset("frame", "localsplus", 4)?,
                // Not described, or not in all releases; as far from what is in all that describe themselves.
                exceptions: current_frame.checked_add(24)?,
                local_count: first_line.checked_add(4)?,
                frame_size: first_line.checked_add(8)?,
                values_end: instruction.checked_add(4)?,
            }),
        },
        frame: FrameLayout {
            code: fields.offset("frame", "executable", 4)?,
            // References are tagged since 3.14: one bit now, two in what is to come.
            code_tags: if minor >= 14 { 3 } else { 0 },
            previous: fields.offset("frame", "previous", 4)?,
            instruction,
            instruction_is_previous: false,
            owner: fields.offset("frame", "owner", 1)?,
            entry: Entry::Shim { owner: 3 },
        },
        code: CodeLayout {
            first_line,
            file_name: fields.offset("code", "filename", 4)?,
            name: fields.offset("code", "name", 4)?,
            qualified_name: fields.offset("code", "qualname", 4)?,
            line_table: fields.offset("code", "linetable", 4)?,
            instructions: fields.offset("code", "co_code_adaptive", 2)?,
            bytes_data: fields.offset("bytes", "ob_sval", 1)?,
        },
        text: TextLayout { ascii, compact: ascii.checked_add(8)? },
        tasks: (minor == LISTS_TASKS).then_some(TASKS_3_14),
    })
}

struct Fields<'a> {
    guest: &'a dyn GuestMemory,
    address: u64,
    names: &'static str,
}

impl Fields<'_> {
    fn field(&self, structure: &str, member: &str) -> Option<u64> {
        let is_it = |name: &str| name.split_once('.') == Some((structure, member));
        let index = self.names.split_whitespace().position(is_it)? as u64;
        self.guest.read_u64(self.address.checked_add(8 * index)?).ok()
    }

    fn size(&self, structure: &str) -> Option<u32> {
        let most = if matches!(structure, "runtime" | "interpreter") { LARGEST.0 } else { LARGEST.1 };
        let size = self.field(structure, "size").filter(|size| *size <= most)?;
        u32::try_from(size).ok()
    }

    /// The offset of a member of which `width` bytes are read: inside its structure and aligned.
    fn offset(&self, structure: &str, member: &str, width: u32) -> Option<u32> {
        let size = self.size(structure)?;
        let offset = u32::try_from(self.field(structure, member)?).ok()?;
        // The size of a whole structure, which others extend.
        let end = if member == "asciiobject_size" { offset } else { offset.checked_add(width)? };
        (end <= size && offset.is_multiple_of(width)).then_some(offset)
    }
}
