//! The samples of a profile: a row for each stack and set of labels, however many samples, threads and stores there were of it.

use super::texts::Texts;
use super::{proto, signed};
use std::collections::{BTreeMap, HashMap};
use wlprof_recording::{LabelSetId, Recording, SiteTotals, StackId, State};

/// Labels of a sample that are written. A plugin may give thousands.
const MAX_LABELS: usize = 64;

/// Samples that Pyroscope takes in a profile, by default.
const MOST_SCRAPED: usize = 16_000;

/// A stack, and a set of labels by its number in [`Rows::sets`].
type Row = (StackId, usize);

/// What samples come to, by stack and labels.
struct Rows<T> {
    sets: Vec<Vec<proto::Label>>,
    numbers: HashMap<Vec<proto::Label>, usize>,
    sums: BTreeMap<Row, T>,
}

impl<T: Default> Rows<T> {
    fn new() -> Self {
        Self { sets: Vec::new(), numbers: HashMap::new(), sums: BTreeMap::new() }
    }

    fn set(&mut self, labels: Vec<proto::Label>) -> usize {
        if let Some(number) = self.numbers.get(&labels) {
            return *number;
        }
        self.sets.push(labels.clone());
        self.numbers.insert(labels, self.sets.len() - 1);
        self.sets.len() - 1
    }

    fn sum(&mut self, stack: StackId, set: usize) -> &mut T {
        self.sums.entry((stack, set)).or_default()
    }

    /// The rows with what is numbered together.
    fn without_numbers(self, mut add: impl FnMut(&mut T, T)) -> Self {
        let mut rows = Self::new();
        let texts = |set: &Vec<proto::Label>| set.iter().copied().filter(|label| label.num_unit == 0).collect();
        let sets: Vec<usize> = self.sets.iter().map(texts).map(|set| rows.set(set)).collect();
        for ((stack, set), sum) in self.sums {
            add(rows.sum(stack, sets[set]), sum);
        }
        rows
    }

    fn samples(self, recording: &Recording, value: impl Fn(T) -> Vec<i64>) -> Vec<proto::Sample> {
        let sample = |((stack, set), sum): (Row, T)| proto::Sample {
            location_id: recording.frame_ids(stack).map(|frame| u64::from(frame) + 1).collect(),
            value: value(sum),
            label: self.sets[set].clone(),
        };
        self.sums.into_iter().map(sample).collect()
    }
}

/// What the labels of a sample are made of: its thread, where that was, whose time it may be, and what the language says.
type Kind = (usize, &'static str, Option<&'static str>, Option<LabelSetId>);

/// The samples of time.
pub(super) fn of_time(recording: &Recording, is_scraped: bool, texts: &mut Texts) -> Vec<proto::Sample> {
    let names: Vec<String> = recording.threads.iter().map(|thread| recording.thread_name(thread)).collect();
    // What all samples have in common says nothing, and takes room in graphs.
    let tells_thread = !is_scraped && names.iter().any(|name| *name != names[0]);
    let tells_place = recording.samples().any(|sample| place(sample.state) != "guest");
    let mut rows = Rows::<[u64; 2]>::new();
    let mut kinds = HashMap::<Kind, usize>::new();
    for (thread, samples) in recording.threads.iter().enumerate() {
        for sample in samples.samples.iter() {
            let doubt = match sample.state {
                State::Entering => Some("before the function began"),
                State::Returned => Some("perhaps in functions called before"),
                State::Guest | State::Host | State::Blocked => None,
            };
            let place = place(sample.state);
            let set = *kinds.entry((thread, place, doubt, sample.labels)).or_insert_with(|| {
                let own = [
                    ("thread", &*names[thread], tells_thread),
                    ("where", place, tells_place),
                    ("spent", doubt.unwrap_or_default(), doubt.is_some()),
                ];
                let own = own.into_iter().filter(|(.., tells)| *tells);
                let mut labels: Vec<proto::Label> = own.map(|(key, value, _)| label(key, value, texts)).collect();
                let of_guest = sample.labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
                labels.extend(guest_labels(of_guest, texts));
                rows.set(labels)
            });
            let [count, time_ns] = rows.sum(sample.stack, set);
            *count += 1;
            *time_ns = time_ns.saturating_add(sample.period_ns);
        }
    }
    if is_scraped && rows.sums.len() > MOST_SCRAPED {
        rows = rows.without_numbers(|[count, time_ns], [others, other_ns]| {
            *count += others;
            *time_ns = time_ns.saturating_add(other_ns);
        });
    }
    rows.samples(recording, |value| value.map(signed).to_vec())
}

fn place(state: State) -> &'static str {
    match state {
        State::Guest | State::Returned | State::Entering => "guest",
        State::Host => "host",
        State::Blocked => "waiting",
    }
}

/// A sample a stack that allocates, with values of the first `kinds` kinds.
pub(super) fn of_memory(
    recording: &Recording,
    is_scraped: bool,
    kinds: usize,
    texts: &mut Texts,
) -> Vec<proto::Sample> {
    let heaps: Vec<_> = recording.stores.iter().filter_map(|store| Some((&store.name, store.heap.as_ref()?))).collect();
    let tells_store = !is_scraped && heaps.len() > 1;
    let mut rows = Rows::<SiteTotals>::new();
    for (name, heap) in heaps {
        let labels = if tells_store { vec![label("store", name, texts)] } else { Vec::new() };
        let set = rows.set(labels);
        heap.sites.iter().for_each(|site| rows.sum(site.stack, set).add(&site.totals));
    }
    rows.samples(recording, |totals| {
        let amounts = [totals.allocated, totals.held, totals.at_peak, totals.grown];
        amounts[..kinds]
            .iter()
            .flat_map(|amount| [amount.blocks, amount.bytes].map(|number| number.round() as i64))
            .collect()
    })
}

fn label(key: &str, value: &str, texts: &mut Texts) -> proto::Label {
    let key = texts.place(key);
    texts.label(key, value)
}

/// The labels that the guest or its language gave: of a name that comes twice the first, and none of a name of wlprof's or
/// pprof's own.
fn guest_labels(labels: &[(String, String)], texts: &mut Texts) -> impl Iterator<Item = proto::Label> + use<> {
    let mut all = BTreeMap::new();
    for (name, value) in labels.iter().take(MAX_LABELS) {
        let is_taken = ["thread", "where", "spent"].contains(&&**name) || name.starts_with("pprof::");
        let key = if is_taken { texts.of_label(&format!("guest.{name}")) } else { texts.of_label(name) };
        all.entry(key).or_insert_with(|| texts.label(key, value));
    }
    all.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use wlprof_recording::{Sample, Store, Thread, example};

    /// Two threads of two stores, whose samples are of one stack, each of its own set of labels.
    fn recording(sets: Vec<Vec<(String, String)>>) -> Recording {
        let sample = |set| Sample {
            time_ns: 0,
            cpu_delta_ns: 5,
            period_ns: 5,
            stack: 0,
            state: State::Guest,
            labels: Some(set as LabelSetId),
        };
        let thread = |place: usize| Thread {
            store: place as u32,
            name: format!("thread {place}"),
            samples: (0..sets.len()).filter(|set| set % 2 == place).map(sample).collect(),
            ..Thread::default()
        };
        let store = |name: &str| Store { name: name.to_owned(), ..Store::default() };
        Recording {
            threads: vec![thread(0), thread(1)],
            stores: vec![store("one"), store("other")],
            label_sets: sets,
            ..example()
        }
    }

    fn label(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn values(samples: &[proto::Sample]) -> Vec<&[i64]> {
        samples.iter().map(|sample| &*sample.value).collect()
    }

    #[test]
    fn scraped_samples_of_several_threads_and_stores_are_one_row() {
        let recording = recording(vec![vec![label("request", "GET /")], vec![label("request", "GET /")]]);
        let mut texts = Texts::new();
        assert_eq!(values(&of_time(&recording, true, &mut texts)), [[2, 10]]);
        assert_eq!(values(&of_time(&recording, false, &mut texts)), [[1, 5], [1, 5]]);
    }

    #[test]
    fn numbers_are_numeric_labels() {
        let written = ["7", "0", "-3", "07", "+7", "7 ", "scheduler", "9223372036854775808"];
        let sets = written.iter().map(|value| vec![label("goroutine", value)]).collect();
        let mut texts = Texts::new();
        let samples = of_time(&recording(sets), true, &mut texts);
        let mut labels: Vec<_> = samples.iter().flat_map(|sample| &sample.label).collect();
        labels.sort_by_key(|label| (label.str, label.num));
        let shown: Vec<(i64, &str, bool)> =
            labels.iter().map(|label| (label.num, &*texts.all[label.str as usize], label.num_unit != 0)).collect();
        assert_eq!(shown[..3], [(-3, "", true), (0, "", true), (7, "", true)]);
        let others: BTreeSet<&str> = shown[3..].iter().map(|(_, text, _)| *text).collect();
        // A text is written without the blank behind it.
        assert_eq!(others, BTreeSet::from(["07", "+7", "7", "scheduler", "9223372036854775808"]));
        assert!(shown[3..].iter().all(|(number, _, has_unit)| *number == 0 && !has_unit), "{shown:?}");
    }

    #[test]
    fn more_rows_than_servers_take_lose_their_numbers() {
        let sets = |count: usize| (0..count).map(|set| vec![label("goroutine", &set.to_string())]).collect();
        let mut texts = Texts::new();
        assert_eq!(of_time(&recording(sets(MOST_SCRAPED)), true, &mut texts).len(), MOST_SCRAPED);
        let too_many = recording(sets(MOST_SCRAPED + 1));
        let count = MOST_SCRAPED as i64 + 1;
        assert_eq!(values(&of_time(&too_many, true, &mut texts)), [[count, 5 * count]]);
        assert_eq!(of_time(&too_many, false, &mut texts).len(), MOST_SCRAPED + 1);
    }
}
