//! Where the `JSRuntime` is. No variable leads to it, but every function does: through its realm, a context, to the
//! runtime. And functions lie on the guest's own stack, in the frames of those that run.

use crate::{
    layout::Layout,
    memory::{Window, word},
    values,
};
use wlprof_plugin::{GuestMemory, Truncation};

/// How far up the stack a search goes, in bytes.
const REACH: usize = 32 << 10;
/// Objects that one search looks at.
const MOST_OBJECTS: usize = 256;
/// Contexts that a runtime may have to be believed.
const MOST_CONTEXTS: usize = 64;
/// Runtimes that are remembered.
const MOST_RUNTIMES: usize = 8;
/// So many walks apart the stack is searched for others than those that are known, when missing frames have walks search
/// as well; and if they cannot, as nothing tells that frames are missing.
const PERIOD: u32 = 64;
const PERIOD_ALONE: u32 = 8;

/// A runtime, and the context by which it is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    pub(crate) address: u32,
    context: u32,
}

/// The runtimes of a guest.
#[derive(Debug)]
pub(crate) struct Runtimes {
    known: Vec<Runtime>,
    /// Those that the stack has functions of, innermost first.
    on_stack: Vec<Runtime>,
    running: Vec<Running>,
    stack: Vec<u8>,
    walks: u32,
    period: u32,
}

/// A runtime that runs a function, and its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) runtime: u32,
    pub(crate) frame: u32,
}

impl Runtimes {
    /// With all the room that is needed, so that searching allocates nothing. `is_told` if [`Self::search_next`] will be
    /// called when frames are missing.
    pub(crate) fn new(is_told: bool) -> Self {
        Self {
            known: Vec::with_capacity(MOST_RUNTIMES),
            on_stack: Vec::with_capacity(MOST_RUNTIMES),
            running: Vec::with_capacity(MOST_RUNTIMES),
            stack: vec![0; REACH],
            walks: 0,
            period: if is_told { PERIOD } else { PERIOD_ALONE },
        }
    }

    /// Whether one has ever been found.
    pub(crate) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Has the next walk search the stack: there seem to be others than those that are known.
    pub(crate) fn search_next(&mut self) {
        self.walks = self.period - 1;
    }

    /// The runtimes that run functions, innermost first: several if a native function of one uses another. `None` if no
    /// runtime is known.
    pub(crate) fn running(
        &mut self,
        guest: &dyn GuestMemory,
        layout: &Layout,
        stack_pointer: u32,
    ) -> Option<&[Running]> {
        let frame = |runtime: &Runtime| word(guest, runtime.address, layout.runtime.current_stack_frame).unwrap_or(0);
        self.walks = self.walks.wrapping_add(1);
        self.known.retain(|runtime| runtime.is_still_there(guest, layout).unwrap_or(false));
        self.on_stack.clear();
        let busy = self.known.iter().filter(|runtime| frame(runtime) != 0).count();
        // One that is idle may only be the one that is known.
        let is_time = self.walks.is_multiple_of(self.period);
        if busy != 1 || is_time {
            let most = if busy > 1 || is_time { MOST_RUNTIMES } else { 1 };
            self.search(guest, layout, stack_pointer, most);
        }
        self.running.clear();
        for runtime in self.on_stack.iter().chain(&self.known) {
            let running = Running { runtime: runtime.address, frame: frame(runtime) };
            if running.frame != 0 && !self.running.contains(&running) && self.running.len() < MOST_RUNTIMES {
                self.running.push(running);
            }
        }
        self.has_any().then_some(self.running.as_slice())
    }

    /// Looks for the runtimes of the objects that lie on the stack.
    fn search(&mut self, guest: &dyn GuestMemory, layout: &Layout, stack_pointer: u32, most: usize) {
        let start = u64::from(stack_pointer & !7);
        let length = guest.size().saturating_sub(start).min(REACH as u64) as usize;
        let Some(stack) = self.stack.get_mut(..length) else { return };
        if guest.read(start, stack).is_err() {
            return;
        }
        let mut last = 0;
        let objects = stack.as_chunks().0.iter().filter_map(|&bytes| {
            let object = values::object(u64::from_le_bytes(bytes))?;
            // Values are copied around.
            let is_new = object != last && object % 4 == 0 && object != 0;
            last = object;
            is_new.then_some(object)
        });
        for object in objects.take(MOST_OBJECTS) {
            if self.on_stack.len() >= most {
                return;
            }
            let Ok(Some(found)) = of_object(guest, layout, object) else { continue };
            let is_there = |list: &[Runtime]| list.iter().any(|runtime| runtime.address == found.address);
            if is_there(&self.on_stack) || !found.has_context(guest, layout).unwrap_or(false) {
                continue;
            }
            self.on_stack.push(found);
            if !is_there(&self.known) {
                if self.known.len() >= MOST_RUNTIMES {
                    self.known.remove(0);
                }
                self.known.push(found);
            }
        }
    }
}

impl Runtime {
    /// A short look at whether it is still what it was when found.
    fn is_still_there(self, guest: &dyn GuestMemory, layout: &Layout) -> Result<bool, Truncation> {
        let head = self.address.wrapping_add(layout.runtime.context_list);
        let first = word(guest, head, layout.context.list_next)?;
        Ok(word(guest, self.context, layout.context.rt)? == self.address
            && word(guest, first, layout.context.list_prev)? == head)
    }

    /// Whether the context is on the runtime's list, and the list in order.
    fn has_context(self, guest: &dyn GuestMemory, layout: &Layout) -> Result<bool, Truncation> {
        if self.address == 0 || !self.address.is_multiple_of(4) {
            return Ok(false);
        }
        let members = &layout.context;
        let head = self.address.wrapping_add(layout.runtime.context_list);
        let mut previous = head;
        let mut is_listed = false;
        for _ in 0..MOST_CONTEXTS {
            let link = word(guest, previous, members.list_next)?;
            if word(guest, link, members.list_prev)? != previous {
                return Ok(false);
            }
            if link == head {
                return Ok(is_listed);
            }
            let context = link.wrapping_sub(members.link);
            if word(guest, context, members.rt)? != self.address {
                return Ok(false);
            }
            is_listed |= context == self.context;
            previous = link;
        }
        Ok(false)
    }
}

/// The runtime that the function at `object` belongs to, if it is a function; it may be none.
fn of_object(guest: &dyn GuestMemory, layout: &Layout, object: u32) -> Result<Option<Runtime>, Truncation> {
    let members = &layout.object;
    let window = Window::read(guest, object, members.function_bytecode.max(members.realm).saturating_add(4))?;
    let class = window.half(members.class_id)?;
    let context = if layout.classes.bytecode.contains(&class) {
        word(guest, window.word(members.function_bytecode)?, layout.bytecode.realm)?
    } else if class == layout.classes.c_function {
        window.word(members.realm)?
    } else {
        return Ok(None);
    };
    Ok(Some(Runtime { address: word(guest, context, layout.context.rt)?, context }))
}
