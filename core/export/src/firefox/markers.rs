//! Markers: host calls that lasted, and what samples belong to as the guest's language says, each label a row of its own.

use super::ms;
use crate::categories::category_index;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wlprof_recording::{Category, Recording, Sample, Thread};

/// The marker of a host call.
pub(super) const HOST_CALL: &str = "Host call";

/// What kind of marker labels are. Each is called as its label.
const LABEL: &str = "Label";

/// Labels that are shown: rows that one can still look at.
const MOST_LABELS: usize = 8;

/// Spans of labels in a thread. Those of a guest whose labels change at every sample tell nobody anything, and are left out.
const MOST_SPANS: usize = 20_000;

/// How markers look.
pub(super) fn schema() -> Value {
    json!([{
        "name": HOST_CALL,
        "display": ["marker-chart", "marker-table", "timeline-overview"],
        "chartLabel": "{marker.data.call}",
        "tableLabel": "{marker.data.call}",
        "tooltipLabel": "{marker.data.call}",
        "description": "A host call that lasted from one tick to another. Its ends are the first and the last tick in it.",
        "fields": [
            {"key": "call", "label": "Call", "format": "string"},
            {"key": "waiting", "label": "Thread", "format": "string"},
        ],
    }, {
        "name": LABEL,
        "display": ["marker-chart", "marker-table"],
        "chartLabel": "{marker.data.value}",
        "tableLabel": "{marker.data.value}",
        "tooltipLabel": "{marker.name}: {marker.data.value}",
        "description": "What samples one after another belong to, as the guest's language says.",
        "fields": [{"key": "value", "label": "Value", "format": "string"}],
    }])
}

/// Names of labels that are shown: the first ones that there are.
pub(super) fn label_names(recording: &Recording) -> BTreeSet<&str> {
    let names: BTreeSet<&str> = recording.label_sets.iter().flatten().map(|(name, _)| &**name).collect();
    names.into_iter().take(MOST_LABELS).collect()
}

/// Samples one after another with the same value of a label.
#[derive(Debug, PartialEq)]
pub(super) struct LabelSpan<'a> {
    name: &'a str,
    value: &'a str,
    /// A sample stands for the time before it.
    start_ns: u64,
    end_ns: u64,
}

/// The spans of a thread's labels, in order of their ends. None of a label that has too many.
pub(super) fn label_spans<'a>(recording: &'a Recording, thread: &Thread) -> Vec<LabelSpan<'a>> {
    let names = label_names(recording);
    let mut open = BTreeMap::<&str, LabelSpan<'a>>::new();
    let mut ended = Vec::new();
    let mut counts: BTreeMap<&str, usize> = names.iter().map(|name| (*name, 0)).collect();
    for Sample { time_ns, period_ns, labels, .. } in thread.samples.iter() {
        let set = labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
        for (name, count) in counts.iter_mut().filter(|(_, count)| **count <= MOST_SPANS) {
            let value = set.iter().find(|(own, _)| own == name).map(|(_, value)| &**value);
            match (open.get_mut(name), value) {
                (Some(span), Some(value)) if span.value == value => span.end_ns = time_ns,
                (_, value) => {
                    let before = open.remove(name);
                    *count += usize::from(before.is_some());
                    ended.extend(before);
                    let start_ns = time_ns.saturating_sub(period_ns);
                    open.extend(value.map(|value| (*name, LabelSpan { name, value, start_ns, end_ns: time_ns })));
                }
            }
        }
    }
    ended.extend(open.into_values());
    ended.retain(|span| counts[span.name] <= MOST_SPANS);
    ended
}

/// The markers of a thread. `string` gives the number of a string, `call` the name of a frame's function.
pub(super) fn table(
    recording: &Recording,
    thread: &Thread,
    string: impl Fn(&str) -> usize,
    call: impl Fn(u32) -> String,
) -> Value {
    let mut rows: Vec<(usize, u64, u64, Category, Value)> = Vec::new();
    for span in &thread.host_calls {
        let waiting = if span.blocked { "waiting" } else { "running" };
        let data = json!({"type": HOST_CALL, "call": call(span.frame), "waiting": waiting});
        rows.push((string(HOST_CALL), span.start_ns, span.end_ns, Category::Host, data));
    }
    for LabelSpan { name, value, start_ns, end_ns } in label_spans(recording, thread) {
        rows.push((string(name), start_ns, end_ns, Category::Runtime, json!({"type": LABEL, "value": value})));
    }
    let column = |value: fn(&(usize, u64, u64, Category, Value)) -> Value| rows.iter().map(value).collect::<Value>();
    json!({
        "length": rows.len(),
        "name": column(|row| row.0.into()),
        "startTime": column(|row| ms(row.1).into()),
        "endTime": column(|row| ms(row.2).into()),
        "phase": vec![1; rows.len()],
        "category": column(|row| category_index(row.3).into()),
        "data": column(|row| row.4.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::example;

    #[test]
    fn samples_of_one_label_are_one_span() {
        let recording = example();
        let spans = label_spans(&recording, &recording.threads[0]);
        let states: Vec<_> = spans.iter().filter(|span| span.name == "state").collect();
        let expected = LabelSpan { name: "state", value: "python", start_ns: 2_000_021, end_ns: 7_000_049 };
        assert_eq!(states, [&expected]);
        let goroutines: Vec<_> = spans.iter().filter(|span| span.name == "goroutine").collect();
        let expected = LabelSpan { name: "goroutine", value: "7", start_ns: 7_000_063, end_ns: 11_000_077 };
        assert_eq!(goroutines, [&expected]);
    }

    #[test]
    fn labels_that_change_too_often_are_left_out() {
        let mut recording = example();
        let sample = recording.threads[0].samples.iter().last().unwrap();
        recording.threads[0].samples =
            (0..3 * MOST_SPANS as u32).map(|number| Sample { labels: Some(number % 2), ..sample }).collect();
        assert_eq!(label_spans(&recording, &recording.threads[0]), []);
        let steady = ("steady".to_owned(), "yes".to_owned());
        recording.label_sets[..2].iter_mut().for_each(|set| set.push(steady.clone()));
        let names: Vec<&str> =
            label_spans(&recording, &recording.threads[0]).into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["steady"], "it tells as much as ever");
    }
}
