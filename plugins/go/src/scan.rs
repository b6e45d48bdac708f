//! Reads a function body instruction by instruction, for [`crate::body`], which says what it looks like.

use crate::{
    body::{Body, Call, Convention, Place, State},
    pclntab::{self, FrameSizes, Function, Pclntab},
};
use wasmparser::{BinaryReader, FunctionBody, Operator};

/// Functions cannot have more resume points: a block number has 16 bits.
const MOST_REGIONS: u32 = 1 << 16;

/// What is on top of wasm's operand stack, as far as it concerns SP.
#[derive(Clone, Copy, Debug)]
enum Top {
    Other,
    Depth(Option<i32>),
    DepthAndConstant(Option<i32>, i32),
}

/// A block of wasm that is open.
#[derive(Clone, Copy, Debug)]
enum OpenBlock {
    /// Its end is a resume point.
    Resume,
    /// Anything else, with the depths that hold again at its end: what moves SP inside leaves the function.
    Other(Option<i32>, Option<i32>),
}

pub(crate) struct Scan<'a> {
    table: &'a Pclntab,
    function: &'a Function,
    sizes: FrameSizes,
    is_go: &'a [bool],
    is_own_go: bool,
    body: Body,
    global: Option<i32>,
    local: Option<i32>,
    top: Top,
    place: Place,
    open: Vec<OpenBlock>,
    /// First and last block of each region between resume points.
    regions: Vec<(u32, u32)>,
    region: usize,
    /// Start and first block of the code that has not been given its blocks yet.
    pending: (u32, u32),
    /// Where blocks start among them for certain.
    nops: Vec<u32>,
    /// Where the latest return address was pushed.
    push: Option<u32>,
    constant: Option<u64>,
    return_pc: Option<u64>,
    /// The return address of a call that just returned, and whether that was where nothing can be resumed.
    resumeless: Option<(u64, bool)>,
    /// How many more blocks the code may have: a dispatch can claim as many for each of its regions.
    blocks_left: u32,
    /// Before the `br_table` at the start, or the proof that there is none.
    prelude: bool,
    /// How many blocks were open around the resume points'; `None` without resume points.
    outer: Option<usize>,
    operators: u32,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(table: &'a Pclntab, function: &'a Function, is_go: &'a [bool], is_own_go: bool) -> Self {
        let body = Body::default();
        let sizes = table.frame_sizes(function);
        let last = sizes.blocks().saturating_sub(1);
        Self {
            table,
            function,
            sizes,
            is_go,
            is_own_go,
            body,
            global: Some(0),
            local: None,
            top: Top::Other,
            place: Place::Code,
            open: Vec::new(),
            regions: vec![(0, last)],
            region: 0,
            pending: (0, 0),
            nops: Vec::new(),
            push: None,
            constant: None,
            return_pc: None,
            resumeless: None,
            blocks_left: MOST_REGIONS,
            prelude: true,
            outer: None,
            operators: 0,
        }
    }

    pub(crate) fn read(&mut self, bytes: &[u8], start: u32) -> wasmparser::Result<()> {
        let body = FunctionBody::new(BinaryReader::new(bytes, start as usize));
        let mut operators = body.get_operators_reader()?;
        self.body.convention = self.convention(operators.clone())?;
        self.pending.0 = operators.original_position() as u32;
        if self.body.convention == Convention::Go {
            self.place = Place::Dispatch;
        }
        while !operators.eof() {
            let offset = operators.original_position() as u32;
            self.note_state(offset);
            let operator = operators.read()?;
            self.step(&operator, offset, operators.original_position() as u32);
            self.operators = self.operators.saturating_add(1);
        }
        Ok(())
    }

    fn convention(&self, mut operators: wasmparser::OperatorsReader<'_>) -> wasmparser::Result<Convention> {
        let first = operators.read()?;
        let second = operators.read()?;
        Ok(match (first, second) {
            (Operator::GlobalGet { global_index: 0 }, Operator::LocalSet { local_index: 1 }) if self.is_own_go => {
                Convention::Go
            }
            (Operator::GlobalGet { global_index: 0 }, Operator::I32Eqz) => Convention::Export,
            _ => Convention::Bare,
        })
    }

    fn note_state(&mut self, offset: u32) {
        let state = State { depth: self.global, place: self.place };
        if self.body.states.last().is_none_or(|(_, last)| *last != state) {
            self.body.states.push((offset, state));
        }
    }

    fn step(&mut self, operator: &Operator<'_>, offset: u32, next: u32) {
        let caches_sp = self.body.convention == Convention::Go;
        let top = std::mem::replace(&mut self.top, Top::Other);
        let constant = self.constant.take();
        match *operator {
            Operator::LocalGet { local_index: 1 } if caches_sp => self.top = Top::Depth(self.local),
            Operator::GlobalGet { global_index: 0 } => self.top = Top::Depth(self.global),
            Operator::I32Const { value } => {
                if let Top::Depth(depth) = top {
                    self.top = Top::DepthAndConstant(depth, value);
                }
            }
            Operator::I32Sub | Operator::I32Add => {
                if let Top::DepthAndConstant(depth, value) = top {
                    let value = if matches!(operator, Operator::I32Sub) { value } else { value.wrapping_neg() };
                    self.top = Top::Depth(depth.and_then(|depth| depth.checked_add(value)));
                }
            }
            Operator::LocalTee { local_index: 1 } if caches_sp => {
                self.local = depth_of(top);
                self.top = top;
            }
            Operator::LocalSet { local_index: 1 } if caches_sp => self.local = depth_of(top),
            Operator::GlobalSet { global_index: 0 } => self.set_sp(depth_of(top), offset, next),
            Operator::Nop => self.nops.push(next),
            Operator::I64Const { value } => self.constant = Some(value.cast_unsigned()),
            Operator::I64Store { .. } => {
                let own = |pc: &u64| self.table.index(*pc) == Some(self.function.index);
                if let Some(pc) = constant.filter(own) {
                    self.return_pc = Some(pc);
                }
            }
            Operator::Call { function_index } => self.call(offset, Some(function_index)),
            Operator::CallIndirect { .. } => self.call(offset, None),
            Operator::BrTable { ref targets } if self.prelude => self.dispatch(targets),
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                self.after_call(next, false);
                self.open.push(OpenBlock::Other(self.local, self.global));
                if self.prelude && matches!(operator, Operator::Loop { .. }) {
                    // Jumps come back here, and there are more of them than calls of the function.
                    let last = self.regions[0].1;
                    self.global = self.frame_size(last);
                }
            }
            Operator::BrIf { .. } => self.after_call(next, true),
            Operator::Return => self.after_call(next, false),
            Operator::End => self.end(next),
            _ => {}
        }
        let in_prelude =
            matches!(operator, Operator::Block { .. } | Operator::Loop { .. } | Operator::LocalGet { local_index: 0 });
        if self.prelude && self.operators >= 2 && !in_prelude {
            self.prelude = false;
            if self.place == Place::Dispatch && !matches!(operator, Operator::BrTable { .. }) {
                self.place = Place::Code;
                // What was taken for the way to a block is a function without any.
                for (_, state) in &mut self.body.states {
                    state.place = Place::Code;
                }
            }
        }
    }

    fn set_sp(&mut self, depth: Option<i32>, offset: u32, next: u32) {
        let before = std::mem::replace(&mut self.global, depth);
        // A call of `morestack` before it looks the same in functions whose frame has 8 bytes, but is inside an `if`.
        let is_prologue =
            self.region == 0 && !self.is_nested() && before == Some(0) && depth.is_some_and(|depth| depth > 0);
        if is_prologue && self.pending.1 == 0 && depth == self.frame_size(1) {
            self.give_blocks(next, 0, 1);
        } else if depth.zip(before).is_some_and(|(depth, before)| depth == before.saturating_add(8)) {
            self.push = Some(offset);
        }
    }

    fn frame_size(&self, block: u32) -> Option<i32> {
        self.sizes.at(block).and_then(|size| i32::try_from(size).ok())
    }

    fn call(&mut self, offset: u32, target: Option<u32>) {
        let return_pc = self.return_pc.take();
        self.body.calls.push(Call { offset, return_pc, target });
        let is_go = target.is_none_or(|target| self.is_go.get(target as usize).copied().unwrap_or(false));
        if let Some(pc) = return_pc {
            // The callee has popped the return address.
            self.global = self.global.map(|depth| depth.saturating_sub(8));
            self.place = Place::AfterCall;
            self.resumeless = Some((pc, self.is_nested()));
        } else if is_go && self.body.convention == Convention::Go {
            // A tail call: the callee has popped our own.
            self.global = Some(-8);
            self.place = Place::AfterCall;
        }
    }

    /// Whether the code is inside a block of its own, where nothing can be resumed.
    fn is_nested(&self) -> bool {
        let resumes = self.regions.len().saturating_sub(self.region.saturating_add(1));
        self.open.len() > self.outer.unwrap_or(0) + resumes
    }

    /// The branch after a call, or whatever else ends looking at what it returned.
    fn after_call(&mut self, next: u32, is_unwind: bool) {
        if self.place == Place::AfterCall {
            self.place = Place::Code;
        }
        if let Some((pc, is_nested)) = self.resumeless.take()
            && (is_nested || !is_unwind)
        {
            let block = pclntab::block(pc);
            if block <= self.pending.1 {
                // `morestack`, which starts the function again: the call was put in after blocks were counted.
                return;
            }
            // A call of `sigpanic`, which takes two blocks, unwinds; others that cannot be resumed trap.
            self.give_blocks(next, block.saturating_sub(1), block + u32::from(is_unwind));
        }
    }

    fn dispatch(&mut self, targets: &wasmparser::BrTable<'_>) {
        let last_region = targets.default();
        if last_region >= MOST_REGIONS || last_region as usize >= self.open.len() {
            return;
        }
        let last_block = self.regions[0].1;
        let mut regions = vec![(u32::MAX, 0); last_region as usize + 1];
        let labels = targets.targets().map_while(Result::ok).chain([last_region]);
        let mut count = 0;
        for (block, region) in (0..MOST_REGIONS).zip(labels) {
            if let Some(region) = regions.get_mut(region as usize) {
                *region = (region.0.min(block), block);
            }
            count = block;
        }
        if let Some(last) = regions.last_mut() {
            *last = (last.0.min(count), last_block.max(count));
        }
        let resumes = self.open.len() - regions.len();
        self.outer = Some(resumes);
        self.open.iter_mut().skip(resumes).for_each(|open| *open = OpenBlock::Resume);
        self.regions = regions;
        self.region = usize::MAX;
    }

    fn end(&mut self, next: u32) {
        match self.open.pop() {
            Some(OpenBlock::Resume) => {
                if let Some((_, last)) = self.regions.get(self.region) {
                    self.give_blocks(next, *last, 0);
                }
                self.region = self.region.wrapping_add(1);
                let (first, _) = self.regions.get(self.region).copied().unwrap_or((0, 0));
                self.pending = (next, first);
                let size = self.frame_size(first);
                self.global = if self.region == 0 { Some(0) } else { size };
                self.local = self.global;
                self.place = Place::Code;
                self.return_pc = None;
                self.resumeless = None;
                self.push = None;
            }
            Some(OpenBlock::Other(local, global)) => {
                (self.local, self.global) = (local, global);
                if self.place == Place::AfterCall {
                    self.place = Place::Code;
                }
                if self.open.is_empty() && self.outer.is_some() {
                    // Only `unreachable` is left, and at the very end what `br_if unwind` leads to.
                    self.place = Place::Unwinding;
                    self.global = None;
                }
            }
            None => {}
        }
    }

    /// Gives the code since the last time its blocks, up to `last`; what follows starts with `following`.
    ///
    /// Every `nop` is where an inlined call begins and starts a block; so does all else that begins or ends one, which
    /// does not show, and is spread evenly. Pushing a return address is in the last block.
    fn give_blocks(&mut self, end: u32, last: u32, following: u32) {
        let (start, first) = std::mem::replace(&mut self.pending, (end, following));
        let nops = std::mem::take(&mut self.nops);
        let end = self.push.take().filter(|push| *push > start).unwrap_or(end);
        let count = last.saturating_sub(first).min(self.blocks_left);
        self.blocks_left -= count;
        let mut starts: Vec<u32> = nops.into_iter().take(count as usize).collect();
        let others = u64::from(count) - starts.len() as u64;
        let length = u64::from(end.saturating_sub(start));
        starts.extend((1..=others).map(|at| start + (length * at / (others + 1)) as u32));
        starts.sort_unstable();
        for (block, start) in (first..).zip(std::iter::once(start).chain(starts)) {
            match self.body.blocks.last_mut() {
                Some(previous) if previous.0 >= start => previous.1 = block,
                _ => self.body.blocks.push((start, block)),
            }
        }
    }

    pub(crate) fn finish(mut self, end: u32) -> Body {
        if let Some((_, last)) = self.regions.get(self.region) {
            self.give_blocks(end, *last, 0);
        }
        self.body.index()
    }
}

fn depth_of(top: Top) -> Option<i32> {
    match top {
        Top::Depth(depth) => depth,
        _ => None,
    }
}
