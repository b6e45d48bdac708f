//! Which labels of samples are pushed, and how many values of them.

use super::limits::bounded_text;
use crate::pprof::number_of;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Distinct sets of text labels that are pushed: servers make a series of each.
pub const MAX_SERIES: usize = 1000;

/// The value of text labels in sets beyond [`MAX_SERIES`].
const OTHER: &str = "[other]";

/// The label with a trace's id, as 32 hex digits.
const TRACE_ID: &str = "trace_id";

/// The label with a span's id, as 16 hex digits.
const SPAN_ID: &str = "span_id";

/// The labels of samples that pushed profiles keep. All others are dropped, and rows that are equal then are added up.
///
/// Values that are integers stay numbers. Servers make no series of numbers in pprof; Pyroscope may make some of numbers in OTLP.
///
/// Texts are counted. After [`MAX_SERIES`] distinct sets, each text of further sets becomes `[other]`. So keep one `KeptLabels` for all
/// profiles of a run, and share it between threads.
///
/// The labels `trace_id` and `span_id` are always kept where both are valid. They are a span, which is no series.
///
/// ```
/// use wlprof_export::{KeptLabels, pushed_pprof};
///
/// let kept = KeptLabels::new(["request", "status"]);
/// let profile = pushed_pprof(&wlprof_recording::example(), &kept);
/// assert!(profile.rows > 0 && !kept.is_full());
/// ```
#[derive(Debug, Default)]
pub struct KeptLabels {
    names: Vec<KeptName>,
    hasher: RandomState,
    series: Mutex<Series>,
}

#[derive(Debug)]
struct KeptName {
    name: String,
    /// Without control characters.
    shown: String,
}

#[derive(Debug, Default)]
struct Series {
    /// Hashes of the sets.
    known: HashSet<u64>,
    is_full: bool,
}

/// What a pushed profile says of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SampleLabels {
    /// Numbers of names, and values.
    pub(crate) values: Vec<(usize, LabelValue)>,
    pub(crate) span: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LabelValue {
    Text(String),
    Number(i64),
}

/// A span of a distributed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
}

impl KeptLabels {
    /// Keeps the labels of these names, in this order.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut kept = Self::default();
        for name in names {
            let name = name.into();
            let shown = bounded_text(&name).into_owned();
            let is_span = [TRACE_ID, SPAN_ID].contains(&&*shown);
            if !is_span && kept.names.iter().all(|other| other.shown != shown) {
                kept.names.push(KeptName { name, shown });
            }
        }
        kept
    }

    /// Returns whether there were more than [`MAX_SERIES`] distinct sets of texts, so that some became `[other]`.
    pub fn is_full(&self) -> bool {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).is_full
    }

    /// A label's name as it is written, by its number.
    pub(crate) fn name(&self, number: usize) -> &str {
        &self.names[number].shown
    }

    /// What is kept of these labels. Of labels of one name the first counts.
    pub(crate) fn of(&self, labels: &[(String, String)]) -> SampleLabels {
        let value_of = |wanted: &str| labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value);
        let values = self.names.iter().enumerate().filter_map(|(number, name)| {
            let value = value_of(&name.name)?;
            Some((number, number_of(value).map_or_else(|| LabelValue::Text(label_text(value)), LabelValue::Number)))
        });
        let mut values: Vec<(usize, LabelValue)> = values.collect();
        self.bound(&mut values);
        let span = value_of(TRACE_ID).zip(value_of(SPAN_ID)).and_then(|(trace_id, span_id)| {
            Some(Span { trace_id: bytes_of_hex(trace_id)?, span_id: bytes_of_hex(span_id)? })
        });
        SampleLabels { values, span }
    }

    /// Replaces the texts if there are too many sets of them already.
    fn bound(&self, values: &mut [(usize, LabelValue)]) {
        let texts = values.iter().filter(|(_, value)| matches!(value, LabelValue::Text(_)));
        let texts: Vec<&(usize, LabelValue)> = texts.collect();
        if texts.is_empty() {
            return;
        }
        let set = self.hasher.hash_one(texts);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if series.known.contains(&set) {
            return;
        }
        if series.known.len() < MAX_SERIES {
            series.known.insert(set);
            return;
        }
        series.is_full = true;
        for (_, value) in values {
            if let LabelValue::Text(text) = value {
                OTHER.clone_into(text);
            }
        }
    }
}

/// A value as it is written. Empty ones would be no labels.
fn label_text(value: &str) -> String {
    if value.trim().is_empty() { "[empty]".to_owned() } else { bounded_text(value).into_owned() }
}

/// An id of so many bytes. All zero is none.
fn bytes_of_hex<const SIZE: usize>(hex: &str) -> Option<[u8; SIZE]> {
    if hex.len() != 2 * SIZE || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; SIZE];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    bytes.iter().any(|byte| *byte != 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn text(text: &str) -> LabelValue {
        LabelValue::Text(text.to_owned())
    }

    #[test]
    fn named_labels_are_kept_in_the_order_of_the_names() {
        let kept = KeptLabels::new(["b", "a", "trace_id", "b"]);
        let of = kept.of(&labels(&[("a", "x\ny"), ("c", "z"), ("b", "7"), ("a", "other"), ("trace_id", "1")]));
        assert_eq!(of.values, [(0, LabelValue::Number(7)), (1, text("x y"))]);
        assert_eq!((kept.name(0), kept.name(1), of.span), ("b", "a", None));
        assert_eq!(kept.of(&labels(&[("a", " ")])).values, [(1, text("[empty]"))]);
    }

    #[test]
    fn a_span_has_both_ids_whole() {
        const TRACE: &str = "4BF92F3577B34DA6A3CE929D0E0E4736";
        const SPAN: &str = "00f067aa0ba902b7";
        let kept = KeptLabels::default();
        let span = |trace: &str, span: &str| kept.of(&labels(&[("span_id", span), ("trace_id", trace)])).span;
        let whole = span(TRACE, SPAN).unwrap();
        assert_eq!((whole.trace_id[0], whole.span_id), (0x4b, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
        let zero = "0".repeat(32);
        let bad = [(&TRACE[1..], SPAN), (TRACE, ""), (&*zero, SPAN), (TRACE, "+0f067aa0ba902b7"), (TRACE, "éééééééé")];
        bad.into_iter().for_each(|(trace, id)| assert_eq!(span(trace, id), None, "{trace} {id}"));
        assert_eq!(kept.of(&labels(&[("trace_id", TRACE)])).span, None);
    }

    #[test]
    fn sets_of_texts_are_bounded_and_numbers_are_not() {
        let kept = KeptLabels::new(["path", "goroutine"]);
        let of = |path: usize| kept.of(&labels(&[("path", &format!("/{path}")), ("goroutine", &path.to_string())]));
        (0..MAX_SERIES).for_each(|path| assert_eq!(of(path).values[0].1, text(&format!("/{path}"))));
        assert!(!kept.is_full());
        assert_eq!(of(MAX_SERIES).values, [(0, text("[other]")), (1, LabelValue::Number(MAX_SERIES as i64))]);
        assert!(kept.is_full());
        assert_eq!(of(3).values[0].1, text("/3"), "known sets stay");
        let numbers = kept.of(&labels(&[("goroutine", "-5")]));
        assert_eq!(numbers.values, [(1, LabelValue::Number(-5))]);
    }
}
