//! `--push`: what is said of pushing, and the counts of it in metrics.

use super::failure::{FAILED, Failure};
use super::say;
use std::fmt::Write as _;
use std::sync::Arc;
use wlprof::profiler::Profiler;
use wlprof_push::{DropReason, Push, PushCounts, Pushing};
use wlprof_show::escape;

/// Returns the counts of what is pushed by now.
pub(super) type PushCounter = Arc<dyn Fn() -> PushCounts + Send + Sync>;

/// What is pushed of a run, until it is over.
pub(super) struct RunPush {
    pushing: Pushing,
    server: String,
    is_quiet: bool,
}

/// Begins to push what `profiler` samples, if it is to.
pub(super) fn begin(
    push: Option<Push>,
    profiler: Option<&Profiler>,
    is_quiet: bool,
) -> Result<Option<RunPush>, Failure> {
    let (Some(push), Some(profiler)) = (push, profiler) else { return Ok(None) };
    let server = push.target().to_string();
    let pushing = profiler.push(push).map_err(|error| Failure::new(FAILED, format!("--push: {error}")))?;
    Ok(Some(RunPush::new(pushing, server, is_quiet)))
}

impl RunPush {
    /// Pushes to `server`.
    pub(super) fn new(pushing: Pushing, server: String, is_quiet: bool) -> Self {
        Self { pushing, server, is_quiet }
    }

    pub(super) fn counter(&self) -> PushCounter {
        Arc::new(self.pushing.counter())
    }

    /// Pushes the last window, and says what has become of all.
    pub(super) fn end(self) {
        say_what_became(&self.pushing.end(), &self.server, self.is_quiet);
    }
}

/// Says what has become of windows. What was lost is said in any case.
pub(super) fn say_what_became(counts: &PushCounts, server: &str, is_quiet: bool) {
    if !is_quiet || counts.dropped_in_all() > 0 {
        say::line(format_args!("{}", escape::single_line(&summary(counts, server))));
    }
}

fn summary(counts: &PushCounts, server: &str) -> String {
    let profiles = |count: u64| format!("{count} profile{}", if count == 1 { "" } else { "s" });
    let mut text = format!("pushed {} to {server}", profiles(counts.delivered));
    for (reason, count) in &counts.dropped {
        // Writing to a string cannot fail.
        let _ = write!(text, "; lost {}: {reason}", profiles(*count));
    }
    if counts.queued > 0 {
        let _ = write!(text, "; {} left in the queue", profiles(counts.queued));
    }
    text
}

/// The counts as OpenMetrics has them.
pub(super) fn metrics(counts: &PushCounts) -> String {
    let mut text = String::new();
    let mut counter = |name: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(text, "# TYPE {name} counter\n# HELP {name} {help}");
        values.iter().for_each(|(label, value)| _ = writeln!(text, "{name}_total{label} {value}"));
    };
    let one = |value| [(String::new(), value)];
    counter("wlprof_push_windows", "Windows that the server has taken.", &one(counts.delivered));
    counter("wlprof_push_empty", "Windows that had nothing in them, and were not sent.", &one(counts.empty));
    let dropped = DropReason::ALL.map(|reason| {
        (format!("{{reason=\"{}\"}}", reason.name()), counts.dropped.get(&reason).copied().unwrap_or_default())
    });
    counter("wlprof_push_dropped", "Windows that no server has taken, by the reason.", &dropped);
    counter("wlprof_push_failed_requests", "Requests that had to be sent again.", &one(counts.failed_requests));
    let bytes = "wlprof_push_sent_bytes";
    let _ = writeln!(text, "# TYPE {bytes} counter\n# UNIT {bytes} bytes\n# HELP {bytes} Bytes of requests.");
    let _ = writeln!(text, "{bytes}_total {}", counts.sent_bytes);
    let queued = "wlprof_push_queued_windows";
    let _ = writeln!(text, "# TYPE {queued} gauge\n# HELP {queued} Windows that wait.\n{queued} {}", counts.queued);
    let queued = "wlprof_push_queued_bytes";
    let _ = writeln!(text, "# TYPE {queued} gauge\n# UNIT {queued} bytes\n# HELP {queued} Bytes of windows that wait.");
    let _ = writeln!(text, "{queued} {}", counts.queued_bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_said_with_its_reason() {
        let dropped = [(DropReason::Ended, 1), (DropReason::Refused, 2)].into();
        let counts = PushCounts { delivered: 3, queued: 1, dropped, ..PushCounts::default() };
        assert_eq!(
            summary(&counts, "parca://h:7070"),
            "pushed 3 profiles to parca://h:7070; lost 2 profiles: refused by the server; \
             lost 1 profile: not delivered before the end; 1 profile left in the queue"
        );
        let metrics = metrics(&counts);
        assert!(metrics.contains("wlprof_push_dropped_total{reason=\"refused\"} 2\n"), "{metrics}");
        assert!(metrics.contains("wlprof_push_queued_windows 1\n"), "{metrics}");
    }
}
