//! Python functions that are resumed: generators, coroutines, asynchronous iteration. A sample may fall between any two instructions of the
//! interpreter, also where a frame is not linked to its caller: its stack is whole all the same, and made of calls that Python itself
//! reports.

use crate::python::{IN_TASK, OTHER_RELEASES, RELEASES, calls, command, python, scripts};
use crate::sampled::{are_few, profile_command, profile_until};
use wlprof::recording::{LanguageTruncation, Recording, Truncation};

const OPTIONS: [&str; 6] =
    ["--lang=python", "--frames=merged", "--rate=10000", "--max-overhead=100", "--sampler=signal", "-q"];

#[test]
fn stacks_of_resumed_functions_are_whole() {
    RELEASES.into_iter().chain([IN_TASK]).for_each(check);
}

#[test]
fn stacks_of_resumed_functions_are_whole_in_every_other_release() {
    OTHER_RELEASES.into_iter().for_each(check);
}

fn check(release: &str) {
    let recording = profile_until(20_000, |times| {
        profile_command(command(&OPTIONS, release, &["resumed.py", &(600 * times).to_string()]), release)
    });
    check_whole(release, &recording);
    check_calls(release, &recording);
    // A generator expression, a key function and recursion.
    check_whole(release, &profile_command(command(&OPTIONS, release, &["shop.py"]), release));
}

/// At most one stack in a thousand is not whole.
fn check_whole(release: &str, recording: &Recording) {
    let is_before_python = |reason: &Truncation| matches!(reason, Truncation::Language(LanguageTruncation::NoStack));
    let broken = recording.truncated.iter().filter(|(reason, _)| !is_before_python(reason)).map(|(_, count)| count);
    let (broken, sampled) = (broken.sum::<u64>(), recording.ticks.sampled);
    println!("{release}: {broken} of {sampled} are not whole: {:?}", recording.truncated);
    assert!(are_few(broken, sampled, 0.001), "{release}: {broken} of {sampled}: {:?}", recording.truncated);
}

/// Each caller and callee of a stack is a call that Python reports.
fn check_calls(release: &str, recording: &Recording) {
    let script = std::fs::read_to_string(scripts().join("resumed.py")).unwrap();
    let lines: Vec<&str> = script.lines().collect();
    let calls = calls(release, &["resumed.py", "50"]);
    let mut pairs = 0;
    for sample in recording.samples() {
        let frames: Vec<_> = recording.frames_of(sample.stack).filter_map(|frame| python(recording, frame)).collect();
        for pair in frames.windows(2) {
            let [callee, caller] = pair else { unreachable!("windows of two") };
            if [callee, caller].iter().any(|(_, file, _)| !file.ends_with("resumed.py")) {
                continue;
            }
            let call = (caller.0.to_owned(), caller.2, callee.0.to_owned());
            // Python reports no call when a generator or coroutine is only made.
            let makes = || lines[caller.2 as usize - 1].contains(&format!("{}(", callee.0.rsplit('.').next().unwrap()));
            assert!(calls.contains(&call) || makes(), "{release}: {call:?} in {frames:?}");
            pairs += 1;
        }
    }
    println!("{release}: {pairs} pairs of {} calls", calls.len());
    assert!(pairs > recording.ticks.sampled, "{release}: {pairs} pairs");
}
