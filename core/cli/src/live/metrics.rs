//! Counts of the guest, as OpenMetrics has them: what Prometheus, Grafana and PCP gather.

use super::state::State;
use super::windows::{Refusal, blocking};
use crate::pushing::{self, PushCounter};
use axum::extract::State as Given;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use std::fmt::Write as _;
use std::sync::Arc;
use wlprof::sampler::Activity;

/// What metrics are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    OpenMetrics,
    /// What Prometheus had before, and what knows no other is given: it has no units, and counters are called what their samples are.
    Prometheus,
}

impl Syntax {
    /// The one that who accepts `accept` reads.
    fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("text/plain") && !accept.contains("application/openmetrics-text") => {
                Self::Prometheus
            }
            _ => Self::OpenMetrics,
        }
    }

    fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        })
    }

    /// `text`, which is in OpenMetrics.
    fn of(self, text: &str) -> String {
        let line = |line: &str| match self {
            Self::OpenMetrics => Some(line.to_owned()),
            Self::Prometheus => match line.split(' ').collect::<Vec<_>>()[..] {
                ["#", "UNIT" | "EOF", ..] => None,
                // Of gauges the names are the same.
                ["#", kind @ ("TYPE" | "HELP"), name, ..] if text.contains(&format!("# TYPE {name} counter\n")) => {
                    Some(line.replacen(&format!("{kind} {name} "), &format!("{kind} {name}_total "), 1))
                }
                _ => Some(line.to_owned()),
            },
        };
        text.lines().filter_map(line).map(|line| line + "\n").collect()
    }
}

pub(super) async fn answer(Given(state): Given<Arc<State>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let guest = state.guest.clone();
    let activity = blocking(&state.counters, move || Ok(guest.activity())).await?;
    let syntax = Syntax::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    Ok(([(CONTENT_TYPE, syntax.media_type())], syntax.of(&text(&activity, state.pushed.as_ref()))).into_response())
}

fn text(activity: &Activity, pushed: Option<&PushCounter>) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut text = String::new();
    let mut counter_s = |name: &str, ns: u64, help: &str| {
        let _ = writeln!(text, "# TYPE {name} counter\n# UNIT {name} seconds\n# HELP {name} {help}");
        let _ = writeln!(text, "{name}_total {}", seconds(ns));
    };
    counter_s("wlprof_guest_cpu_seconds", activity.cpu_ns, "CPU time of the guest's threads, host calls among it.");
    counter_s("wlprof_guest_wall_seconds", activity.duration_ns, "Time since the guest began.");
    counter_s("wlprof_sampled_seconds", activity.sampled_ns, "Time that samples stand for.");
    counter_s("wlprof_sampling_seconds", activity.sampling_ns, "CPU time that sampling took from the guest's threads.");
    let mut counter = |name: &str, count: u64, help: &str| {
        let _ = writeln!(text, "# TYPE {name} counter\n# HELP {name} {help}\n{name}_total {count}");
    };
    counter("wlprof_samples", activity.samples, "Samples taken.");
    counter("wlprof_samples_lost", activity.lost, "Samples that a full buffer had no room for.");
    let name = "wlprof_guest_memory_bytes";
    let _ =
        writeln!(text, "# TYPE {name} gauge\n# UNIT {name} bytes\n# HELP {name} Size of the guest's linear memory.");
    let _ = writeln!(text, "{name} {}", activity.memory_bytes);
    let name = "wlprof_host_calls";
    let _ = writeln!(
        text,
        "# TYPE {name} counter\n# HELP {name} Calls of the host by the guest that have returned, by import."
    );
    for (import, count) in &activity.host_calls {
        let import = label(import.as_deref().unwrap_or("other"));
        let _ = writeln!(text, "{name}_total{{import=\"{import}\"}} {count}");
    }
    pushed.iter().for_each(|counts| text.push_str(&pushing::metrics(&counts())));
    text.push_str("# EOF\n");
    text
}

/// The value of a label, between its quotation marks.
fn label(value: &str) -> String {
    let printable = value.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c });
    printable.collect::<String>().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_end_where_they_should() {
        let activity = Activity {
            cpu_ns: 1_500_000_000,
            host_calls: [(Some("a\"} 1\n\\b\u{7}".to_owned()), 3), (None, 1)].into_iter().collect(),
            ..Activity::default()
        };
        let text = text(&activity, None);
        assert!(text.contains("wlprof_guest_cpu_seconds_total 1.5\n"), "{text}");
        let calls: Vec<&str> = text.lines().filter(|line| line.starts_with("wlprof_host_calls_total")).collect();
        let expected = ["{import=\"other\"} 1", "{import=\"a\\\"} 1\\n\\\\b\u{fffd}\"} 3"];
        assert_eq!(calls, expected.map(|labelled| format!("wlprof_host_calls_total{labelled}")));
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn who_knows_no_openmetrics_is_given_what_prometheus_had_before() {
        assert_eq!(Syntax::accepted(None), Syntax::OpenMetrics);
        assert_eq!(Syntax::accepted(Some("*/*")), Syntax::OpenMetrics);
        assert_eq!(Syntax::accepted(Some("text/plain;version=0.0.4;q=0.5,*/*;q=0.1")), Syntax::Prometheus);
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Syntax::accepted(Some(prometheus)), Syntax::OpenMetrics);
        let activity =
            Activity { host_calls: [(Some("# UNIT".to_owned()), 3)].into_iter().collect(), ..<_>::default() };
        let text = Syntax::Prometheus.of(&text(&activity, None));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"# TYPE wlprof_guest_cpu_seconds_total counter"), "{text}");
        assert!(lines.contains(&"# HELP wlprof_samples_total Samples taken."), "{text}");
        assert!(lines.contains(&"# TYPE wlprof_guest_memory_bytes gauge"), "{text}");
        assert!(lines.contains(&"wlprof_host_calls_total{import=\"# UNIT\"} 3"), "{text}");
        assert!(!lines.iter().any(|line| line.starts_with("# UNIT") || line.starts_with("# EOF")), "{text}");
    }
}
