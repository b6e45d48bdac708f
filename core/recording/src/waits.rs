//! Sums over samples that waited: at which line, and in which call of the host.

use super::{Category, FunctionId, Line, Origin, Recording, StackId, State, Weight};
use std::collections::BTreeMap;

/// Time waited at one line in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTotal {
    /// The function that waited: of a script, the innermost one; else the user's innermost one, below which are only the
    /// libraries that it called; else whatever called the host.
    pub function: FunctionId,
    /// Its line, if lines are known.
    pub line: Option<u32>,
    /// The host's function that it waited in, if wasm called one.
    pub call: Option<FunctionId>,
    /// The time.
    pub time: Weight,
}

impl WaitTotal {
    /// Adds up the samples of `recording` that waited, most time first.
    pub fn of(recording: &Recording) -> Vec<Self> {
        type Key = (FunctionId, Option<u32>, Option<FunctionId>);
        let mut sums = BTreeMap::<Key, Weight>::new();
        for draw in recording.draws().filter(|draw| draw.state == State::Blocked) {
            let (place, call) = place(recording, draw.stack);
            sums.entry((place.function, place.line, call)).or_default().add_draw(draw.period_ns);
        }
        let total = |((function, line, call), time)| Self { function, line, call, time };
        let mut waits: Vec<Self> = sums.into_iter().map(total).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.time.ns));
        waits
    }
}

/// Where a stack waits, and in which call.
fn place(recording: &Recording, stack: StackId) -> (Line, Option<FunctionId>) {
    let frames = || recording.frames_of(stack);
    let is_call = |origin: Origin| matches!(origin, Origin::HostCall { .. });
    let leaf = frames().next().expect("a stack has a frame");
    let call = is_call(leaf.origin).then(|| leaf.lines[0].function);
    let of_language =
        frames().find(|frame| matches!(frame.origin, Origin::Language { .. })).map(|frame| frame.lines[0]);
    let has_native =
        frames().find(|frame| !is_call(frame.origin)).is_some_and(|frame| matches!(frame.origin, Origin::Wasm { .. }));
    let is_users = |line: &Line| recording.functions[line.function as usize].category == Category::User;
    let of_user = recording.lines_of(stack).find(is_users);
    let calling = frames().find(|frame| !is_call(frame.origin)).map(|frame| frame.lines[0]);
    // Where a script calls native code, the script's line it is, whatever that code is taken for.
    let of_script = of_language.filter(|_| has_native);
    (of_script.or(of_user).or(of_language).or(calling).unwrap_or(leaf.lines[0]), call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn it_is_the_line_that_called_the_host() {
        let recording = example();
        let waits = WaitTotal::of(&recording);
        let name = |function: FunctionId| recording.functions[function as usize].name.as_str();
        let [wait] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(name(wait.function), "Shop.price.<locals>.<genexpr>");
        assert_eq!((wait.line, wait.call.map(name)), (Some(7), Some("wasi_snapshot_preview1.fd_write")));
    }
}
