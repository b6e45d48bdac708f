//! What Python awaits while none of it runs. A component whose functions are `async` has no stack then: each of its tasks has
//! returned to the host, which will call it when there is something to go on with. Its coroutines are in memory, each suspended in
//! what it awaits.

use crate::{
    chain::{Reader, key},
    layout::{OBJECT_TYPE, TYPE_NAME, TaskLayout},
    threads::Thread,
};
use wlprof_plugin::{FrameSink, Truncation};

/// Tasks of a thread that are looked at.
const MOST_TASKS: usize = 256;

/// `FRAME_SUSPENDED_YIELD_FROM`: a coroutine that awaits another, or something else, which lies on top of its frame's stack.
const AWAITS: u8 = 0xff;
/// Bits of references that are not part of the address.
const TAGS: u32 = 3;

impl Reader<'_> {
    /// Reads the coroutines of one of the thread's tasks that await something other than a task, from the innermost on: of
    /// another one at each `turn`. None if no task does.
    pub(crate) fn read_awaited(&mut self, thread: Thread, turn: u64) -> Result<(), Truncation> {
        self.chain.clear();
        let Some(layout) = self.layout.tasks else { return Ok(()) };
        let mut tasks = [0; MOST_TASKS];
        let mut count = 0;
        let head = thread.address.wrapping_add(layout.head);
        let mut node = self.word(head, 0)?;
        for _ in 0..MOST_TASKS {
            if node == head || node == 0 {
                break;
            }
            let task = node.wrapping_sub(layout.node);
            if !self.is_named(task, b"_asyncio.Task") {
                break;
            }
            if self.is_named(self.word(task, layout.awaits)?, b"_asyncio.Future") {
                tasks[count] = task;
                count += 1;
            }
            node = self.word(node, 0)?;
        }
        let Some(turn) = turn.checked_rem(count as u64) else { return Ok(()) };
        let coroutine = self.word(tasks[turn as usize], layout.coroutine)?;
        let read = self.read_coroutines(layout, coroutine);
        // What has not been read to its end has no innermost.
        if read.is_err() {
            self.chain.clear();
        }
        self.chain.frames.reverse();
        read
    }

    /// Reads a coroutine and what it awaits, the outermost first.
    fn read_coroutines(&mut self, layout: TaskLayout, mut coroutine: u32) -> Result<(), Truncation> {
        while self.is_named(coroutine, b"coroutine") || self.is_named(coroutine, b"generator") {
            if self.chain.frames.len() >= FrameSink::CAPACITY {
                return Err(Truncation::TooDeep);
            }
            let address = coroutine.wrapping_add(layout.frame);
            let frame = self.frame(address)?;
            let (found, unit) = self.python_frame(&frame)?;
            self.chain.frames.push(key(found.id.0, unit));
            let state = self.guest.read_u8(u64::from(coroutine) + u64::from(layout.frame_state))?;
            if state != AWAITS {
                break;
            }
            let top = self.word(address, layout.stack_pointer)?.wrapping_sub(4);
            coroutine = self.word(top, 0)? & !TAGS;
        }
        Ok(())
    }

    /// Whether an object is of the type of that name.
    fn is_named(&self, object: u32, name: &[u8]) -> bool {
        let read = || -> Result<bool, Truncation> {
            let at = self.word(self.word(object, OBJECT_TYPE)?, TYPE_NAME)?;
            let mut bytes = [0; 16];
            let bytes = &mut bytes[..=name.len()];
            self.guest.read(at.into(), bytes)?;
            Ok(bytes.strip_suffix(&[0]) == Some(name))
        };
        object != 0 && read().unwrap_or(false)
    }
}
