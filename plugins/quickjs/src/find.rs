//! Where the `JSRuntime` is. No variable leads to it, but every function does: through its realm, a context, to the
//! runtime. And functions lie on the guest's own stack, in the frames of those that run.

use crate::{
    layout::Layout,
    memory::{Stop, Window, word},
    values,
};
use wlprof_plugin::GuestMemory;

/// How far up the stack a search goes, in bytes.
const REACH: usize = 32 << 10;
/// Objects that one search looks at.
const MOST_OBJECTS: usize = 256;
/// Contexts that a runtime may have to be believed.
const MOST_CONTEXTS: usize = 64;
/// Runtimes that are remembered.
const MOST_RUNTIMES: usize = 8;

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
    stack: Vec<u8>,
}

impl Default for Runtimes {
    /// With all the room that is needed, so that searching allocates nothing.
    fn default() -> Self {
        Self { known: Vec::with_capacity(MOST_RUNTIMES), stack: vec![0; REACH] }
    }
}

/// A runtime and its innermost frame; 0 if it runs no function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) runtime: u32,
    pub(crate) frame: u32,
}

impl Runtimes {
    /// Whether one has ever been found.
    pub(crate) fn has_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// The runtime that is running. `None` if none is known.
    pub(crate) fn running(&mut self, guest: &dyn GuestMemory, layout: &Layout, stack_pointer: u32) -> Option<Running> {
        let frame = |runtime: &Runtime| word(guest, runtime.address, layout.runtime.current_stack_frame).unwrap_or(0);
        self.known.retain(|runtime| runtime.is_still_there(guest, layout).unwrap_or(false));
        let mut busy = self.known.iter().filter(|runtime| frame(runtime) != 0);
        let found = match (busy.next().copied(), busy.next()) {
            (Some(only), None) => Some(only),
            // Several are busy if one's native function uses another. That whose values lie nearest on the stack is
            // innermost. And one that is idle may only be the one that is known.
            _ => self.search(guest, layout, stack_pointer).or(self.known.first().copied()),
        };
        found.map(|runtime| Running { runtime: runtime.address, frame: frame(&runtime) })
    }

    /// The runtime of the object nearest to the top of the stack.
    fn search(&mut self, guest: &dyn GuestMemory, layout: &Layout, stack_pointer: u32) -> Option<Runtime> {
        let start = u64::from(stack_pointer & !7);
        let length = guest.size().saturating_sub(start).min(REACH as u64) as usize;
        let stack = self.stack.get_mut(..length)?;
        guest.read(start, stack).ok()?;
        let mut last = 0;
        let objects = stack.as_chunks().0.iter().filter_map(|&bytes| {
            let object = values::object(u64::from_le_bytes(bytes))?;
            // Values are copied around.
            let is_new = object != last && object % 4 == 0 && object != 0;
            last = object;
            is_new.then_some(object)
        });
        let found = objects.take(MOST_OBJECTS).find_map(|object| of_object(guest, layout, object).ok().flatten())?;
        if !self.known.iter().any(|known| known.address == found.address) && self.known.len() < MOST_RUNTIMES {
            self.known.push(found);
        }
        Some(found)
    }
}

impl Runtime {
    /// A short look at whether it is still what it was when found.
    fn is_still_there(self, guest: &dyn GuestMemory, layout: &Layout) -> Result<bool, Stop> {
        let head = self.address.wrapping_add(layout.runtime.context_list);
        let first = word(guest, head, layout.context.list_next)?;
        Ok(word(guest, self.context, layout.context.rt)? == self.address
            && word(guest, first, layout.context.list_prev)? == head)
    }
}

/// The runtime that the function at `object` belongs to, if it is a function.
fn of_object(guest: &dyn GuestMemory, layout: &Layout, object: u32) -> Result<Option<Runtime>, Stop> {
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
    let runtime = Runtime { address: word(guest, context, layout.context.rt)?, context };
    Ok(runtime.has_context(guest, layout)?.then_some(runtime))
}

impl Runtime {
    /// Whether the context is on the runtime's list, and the list in order.
    fn has_context(self, guest: &dyn GuestMemory, layout: &Layout) -> Result<bool, Stop> {
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
