//! What `--verbose` tells of the sampler: what became of every tick, which stacks were cut, how long pauses were.

use super::head::describe;
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_recording::Recording;

/// Writes it.
pub(super) fn write(recording: &Recording, text: &mut String) -> fmt::Result {
    let (meta, ticks) = (&recording.meta, &recording.ticks);
    write!(text, "sampler: {} at {:.0} Hz", single_line(&meta.sampler), meta.allowed_hz)?;
    if meta.allowed_hz > meta.requested_hz {
        // More in the beginning.
        write!(text, " on average, {:.0} Hz at most after the first second", meta.requested_hz)?;
    } else {
        write!(text, " of {:.0} Hz that were asked for", meta.requested_hz)?;
    }
    let micros = |ns: u64| ns as f64 / 1e3;
    let pause = meta.pause;
    if pause.handler_p50_ns > 0 {
        write!(text, ", pause p50 {:.1} µs p99 {:.1} µs", micros(pause.handler_p50_ns), micros(pause.handler_p99_ns))?;
    }
    if pause.tick_ns > 0 {
        write!(text, ", an interrupt {:.1} µs", micros(pause.tick_ns))?;
    }
    write!(text, "\nticks: {} fired, {} sampled, {} lost", ticks.fired, ticks.sampled, ticks.lost())?;
    let delayed = match &*meta.sampler {
        "epoch" => "the guest came to no check in time",
        "attach" | "inside" => "the thread did not stop in time",
        _ => "the signal was delayed",
    };
    let lost = [
        (ticks.coalesced, delayed),
        (ticks.ring_full, "buffer full"),
        (ticks.unrecorded, "could not be recorded"),
        (ticks.woke, "the guest woke while being read"),
    ];
    list(text, counted(&lost))?;
    let without_sample = [
        (ticks.idle, "waiting"),
        (ticks.preempted, "without a processor"),
        (ticks.at_end, "at the end"),
        (ticks.late, "that came too late to fire"),
    ];
    let without_sample: Vec<String> = counted(&without_sample).collect();
    if !without_sample.is_empty() {
        write!(text, ", without a sample: {}", without_sample.join(", "))?;
    }
    let truncated: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
    write!(text, "\nstacks: {truncated} truncated")?;
    list(text, recording.truncated.iter().map(|(reason, count)| format!("{count} {}", describe(*reason))))?;
    let ms = |ns: u64| ns as f64 / 1e6;
    writeln!(
        text,
        "\ntime: {:.1} ms not sampled, {:.1} ms in sampling itself",
        ms(meta.unsampled_ns),
        ms(meta.sampling_ns)
    )
}

fn counted<'a>(reasons: &'a [(u64, &str)]) -> impl Iterator<Item = String> + 'a {
    reasons.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"))
}

fn list(text: &mut String, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() { Ok(()) } else { write!(text, " ({})", items.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    #[test]
    fn every_tick_is_told_of() {
        let recording = example();
        let mut text = String::new();
        write(&recording, &mut text).unwrap();
        let ticks = "ticks: 18 fired, 11 sampled, 4 lost (1 the signal was delayed, 1 buffer full, 1 could not be recorded, 1 the \
                     guest woke while being read), without a sample: 1 waiting, 1 without a processor, 1 at the end, 2 that came \
                     too late to fire\n";
        assert!(text.contains(ticks), "{text}");
        assert!(
            text.starts_with("sampler: signal at 812 Hz of 1000 Hz that were asked for, pause p50 0.4 µs"),
            "{text}"
        );
        assert!(
            text.contains("stacks: 3 truncated (1 deeper than a sample holds, 2 language: in host code)\n"),
            "{text}"
        );
        let mut recording = recording;
        recording.meta.sampler = "epoch".into();
        text.clear();
        write(&recording, &mut text).unwrap();
        assert!(text.contains("4 lost (1 the guest came to no check in time, ") && !text.contains("signal"), "{text}");
    }
}
