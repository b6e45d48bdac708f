//! Stacks that were read of a running guest, as text: what Go prints when a program panics, for every language.

use std::borrow::Cow;
use std::fmt::Write as _;
use wlprof::sampler::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};
use wlprof_plugin::SourceFrame;
use wlprof_show::escape;
use wlprof_symbols::Symbols;

/// Those threads of `stacks` that `shows` says, each with its frames, leaf first. Safe to print.
pub(super) fn text(stacks: &Dump, symbols: &mut Symbols, shows: impl Fn(&DumpedThread) -> bool) -> String {
    let note = |note: &String| format!("note: {}\n", escape::single_line(note));
    let mut text: String = stacks.note.iter().map(note).collect();
    for thread in stacks.threads.iter().filter(|thread| shows(thread)) {
        write_thread(thread, stacks, symbols, &mut text);
    }
    escape::multi_line(&text)
}

/// Writing to a string cannot fail.
fn write_thread(thread: &DumpedThread, stacks: &Dump, symbols: &mut Symbols, text: &mut String) {
    let _ = write!(text, "{} [{}]", escape::single_line(&thread.name), escape::single_line(&thread.state));
    if !thread.labels.is_empty() {
        let labels: Vec<_> = thread.labels.iter().map(|label| format!("{}={}", label.name, label.value)).collect();
        let _ = write!(text, " {{{}}}", escape::single_line(&labels.join(", ")));
    }
    let _ = writeln!(text, ":");
    for &frame in &thread.frames {
        for frame in named(frame, stacks, symbols).iter() {
            write_frame("", frame, "(...)", text);
        }
    }
    if let Some(reason) = thread.truncation {
        let _ = writeln!(text, "...the rest cannot be read ({reason})...");
    }
    if let Some((creator, frame)) = &thread.creator
        && let Some(frame) = named(*frame, stacks, symbols).last()
    {
        write_frame("created by ", frame, &format!(" in {}", escape::single_line(creator)), text);
    }
    let _ = writeln!(text);
}

/// The source frames of a frame, innermost inlined call first.
pub(super) fn named<'a>(frame: DumpedFrameId, stacks: &'a Dump, symbols: &mut Symbols) -> Cow<'a, [SourceFrame]> {
    match stacks.frames.get(frame as usize) {
        Some(DumpedFrame::Source(frames)) => Cow::Borrowed(frames),
        Some(DumpedFrame::Unnamed(origin)) => {
            let mut frames = Vec::new();
            symbols.frames(origin, &mut frames);
            Cow::Owned(frames)
        }
        None => Cow::Borrowed(&[]),
    }
}

fn write_frame(before: &str, frame: &SourceFrame, after: &str, text: &mut String) {
    let _ = writeln!(text, "{before}{}{after}", escape::single_line(&frame.function));
    if let Some(file) = &frame.file {
        let _ = writeln!(text, "\t{}:{}", escape::single_line(file), frame.line.unwrap_or(0));
    }
}
