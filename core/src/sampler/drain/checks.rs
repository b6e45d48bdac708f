//! What samples at checks stand for: which function's time it was, as far as the module's code tells.
//!
//! At a check that a function begins with it has not run yet. Since the tick no function was entered, or that would have called back. So the
//! time was spent by the caller, or by functions that it had called and that have returned meanwhile. Where there are none of these it was
//! the caller's. Likewise at other checks it was the function's own, or may have been of some that it had called before.

use super::super::reading::Record;
use super::super::shared::Shared;
use std::collections::HashMap;
use wlprof_module::Checks;
use wlprof_recording::{ModuleId, Origin, State};
use wlprof_walk::{CodeReader, FrameWord, LanguageEntry};

/// What a sample at a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) state: State,
    /// The leaf had not begun: the time is the caller's.
    pub(super) is_callers: bool,
}

/// What was found of checks so far.
#[derive(Default)]
pub(super) struct CheckTable {
    functions: HashMap<(ModuleId, u32), Option<Checks>>,
    /// By the check, and what called its function.
    judged: HashMap<(FrameWord, Option<FrameWord>), Judgement>,
}

impl CheckTable {
    /// What the sample of `record` says; what its header does, if it was taken at no check.
    pub(super) fn judge(&mut self, record: &Record<'_>, shared: &Shared) -> Judgement {
        let as_told = Judgement { state: record.header.state, is_callers: false };
        let Some(leaf) = record.frame(0).filter(|leaf| leaf.is_at_check()) else { return as_told };
        // The other side of a host call's is no caller.
        let caller = record.frame(1).filter(|caller| !caller.is_host_call());
        let judged = match self.judged.get(&(leaf, caller)) {
            Some(judged) => *judged,
            None => {
                let judged = self.judge_anew(leaf, caller, shared);
                self.judged.insert((leaf, caller), judged);
                judged
            }
        };
        // A language may show neither.
        let shows_leaf = record.language.filter(|language| !language.is_empty()).is_none_or(|language| {
            language.entries().next().is_some_and(|entry| matches!(entry, LanguageEntry::Native(0)))
        });
        // Of modules that have come since, too.
        match judged.is_callers && (!shows_leaf || has_tail_calls(shared)) {
            true => Judgement { state: State::Entering, is_callers: false },
            false => judged,
        }
    }

    fn judge_anew(&mut self, leaf: FrameWord, caller: Option<FrameWord>, shared: &Shared) -> Judgement {
        let code = shared.code.read();
        let told = |state| Judgement { state, is_callers: false };
        let Some(Origin::Wasm { module, function, code_offset }) = code.origin(leaf.native_pc()) else {
            return told(State::Returned);
        };
        let Some(checks) = self.checks(leaf, module, function, &code) else { return told(State::Returned) };
        if !checks.is_at_entry(code_offset) {
            return told(if checks.ran_alone(code_offset) { State::Guest } else { State::Returned });
        }
        let is_callers = caller.is_some_and(|caller| match code.origin(caller.native_pc()) {
            // Another module's code may call this one's through others.
            Some(Origin::Wasm { module: callers, function, code_offset }) if callers == module => {
                let checks = self.checks(caller, module, function, &code);
                checks.is_some_and(|checks| checks.ran_alone(code_offset))
            }
            _ => false,
        });
        if is_callers { Judgement { state: State::Guest, is_callers } } else { told(State::Entering) }
    }

    fn checks(&mut self, word: FrameWord, module: ModuleId, function: u32, code: &CodeReader<'_>) -> Option<&Checks> {
        let of = || Checks::of(code.image(word.native_pc())?, function);
        self.functions.entry((module, function)).or_insert_with(of).as_ref()
    }
}

/// Whether what was called may have had another function take its place.
fn has_tail_calls(shared: &Shared) -> bool {
    shared.modules().iter().any(|module| module.image.has_tail_calls())
}
