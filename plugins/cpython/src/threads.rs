//! From `_PyRuntime` to the thread whose Python code is on the wasm stack.

use crate::layout::Layout;
use wlprof_plugin::{GuestMemory, Truncation};

/// Interpreters and threads that are looked at. On WASI there is one of each.
const MOST: usize = 64;

/// A Python thread and its interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) address: u32,
    pub(crate) interpreter: u32,
}

/// The thread that holds the lock or held it last, else the newest of the newest interpreter. `None` if there is none.
pub(crate) fn current(guest: &dyn GuestMemory, layout: &Layout, runtime: u32) -> Result<Option<Thread>, Truncation> {
    let read = |base: u32, offset: u32| guest.read_u32(u64::from(base) + u64::from(offset));
    let mut interpreter = read(runtime, layout.runtime.interpreters_head)?;
    let shared_holder = match layout.runtime.lock_holder {
        Some(offset) => Some(read(runtime, offset)?),
        None => None,
    };
    let mut first = None;
    for _ in 0..MOST {
        if interpreter == 0 {
            break;
        }
        let holder = match (shared_holder, layout.interpreter.lock_holder) {
            (Some(holder), _) => holder,
            (None, Some(offset)) => read(interpreter, offset)?,
            (None, None) => 0,
        };
        let mut address = read(interpreter, layout.interpreter.threads_head)?;
        for _ in 0..MOST {
            if address == 0 || read(address, layout.thread.interpreter)? != interpreter {
                break;
            }
            let thread = Thread { address, interpreter };
            if address == holder {
                return Ok(Some(thread));
            }
            first = first.or(Some(thread));
            address = read(address, layout.thread.next)?;
        }
        interpreter = read(interpreter, layout.interpreter.next)?;
    }
    Ok(first)
}

/// Whether `runtime` looks like `_PyRuntime` of a started interpreter: its interpreter's thread belongs to it.
pub(crate) fn is_runtime(guest: &dyn GuestMemory, layout: &Layout, runtime: u32) -> bool {
    let word = |base: u32, offset: u32| guest.read_u32(u64::from(base) + u64::from(offset)).unwrap_or(0);
    let head = word(runtime, layout.runtime.interpreters_head);
    // `main` follows `head`. The first interpreter is the newest as long as there are no others.
    let main = word(runtime, layout.runtime.interpreters_head + 4);
    let inside = u64::from(runtime)..u64::from(runtime) + u64::from(layout.runtime.size);
    // The main interpreter is a part of the runtime, and its first thread a part of it.
    let thread = word(head, layout.interpreter.threads_head);
    head != 0
        && inside.contains(&u64::from(main))
        && main % 4 == 0
        && thread != 0
        && thread % 4 == 0
        && word(thread, layout.thread.interpreter) == head
}
