//! Counters: how large linear memory was over time, as tracks of the timeline.
//!
//! A counter's samples say how much more it has become. The front end takes the first for unreliable and makes it 0, so that the
//! first here is 0; and it draws a line from one sample to the next, so that a change is two of one time: memory grows at once.

use super::ms;
use serde_json::{Value, json};
use wlprof_recording::{MemorySize, Recording};

/// Stores that have a track each. The memories of more are added up in one.
const MOST_TRACKS: usize = 8;

/// The largest size that is told, 8 PiB: readers hold numbers in floating point, of which that is the last exact one.
const MOST_BYTES: u64 = (1 << 53) - 1;

/// What a memory has more from a time on, in nanoseconds since sampling began.
type Change = (u64, i64);

/// The counters of a recording. None without a thread: each belongs to one.
pub(super) fn table(recording: &Recording) -> Vec<Value> {
    let with_memory: Vec<usize> =
        (0..recording.stores.len()).filter(|&store| !recording.stores[store].memory.is_empty()).collect();
    if recording.threads.is_empty() || with_memory.is_empty() {
        return Vec::new();
    }
    let changes_of = |store: &usize| changes(&recording.stores[*store].memory);
    let until_ns = recording.meta.duration_ns;
    match &with_memory[..] {
        [only] => vec![counter("Linear memory", thread_of(recording, *only), changes_of(only), until_ns)],
        stores if stores.len() <= MOST_TRACKS => stores
            .iter()
            .map(|store| {
                let name = format!("Linear memory of {}", recording.stores[*store].name);
                counter(&name, thread_of(recording, *store), changes_of(store), until_ns)
            })
            .collect(),
        stores => {
            let mut all: Vec<Change> = stores.iter().flat_map(changes_of).collect();
            all.sort_by_key(|(time_ns, _)| *time_ns);
            vec![counter(&format!("Linear memory of {} stores", stores.len()), 0, all, until_ns)]
        }
    }
}

fn changes(sizes: &[MemorySize]) -> Vec<Change> {
    let bytes = |size: &MemorySize| size.bytes.min(MOST_BYTES) as i64;
    let before = std::iter::once(0).chain(sizes.iter().map(bytes));
    sizes.iter().zip(before).map(|(size, before)| (size.time_ns, bytes(size) - before)).collect()
}

/// The thread that a store's counter belongs to.
fn thread_of(recording: &Recording, store: usize) -> usize {
    recording.threads.iter().position(|thread| thread.store as usize == store).unwrap_or(0)
}

fn counter(name: &str, thread: usize, changes: Vec<Change>, until_ns: u64) -> Value {
    let end_ns = changes.last().map_or(until_ns, |(time_ns, _)| until_ns.max(*time_ns));
    let steps = changes.into_iter().flat_map(|(time_ns, more)| [(time_ns, 0), (time_ns, more)]);
    let samples: Vec<Change> = std::iter::once((0, 0)).chain(steps).chain([(end_ns, 0)]).collect();
    json!({
        "name": name,
        "category": "Memory",
        "description": "Size of the guest's linear memory, as it was when samples were taken.",
        "pid": "0",
        "mainThreadIndex": thread,
        "samples": {
            "length": samples.len(),
            "time": samples.iter().map(|(time_ns, _)| ms(*time_ns)).collect::<Vec<f64>>(),
            "count": samples.iter().map(|(_, more)| *more).collect::<Vec<i64>>(),
        },
        "display": {
            "graphType": "line-accumulated",
            "unit": "bytes",
            "color": "orange",
            "markerSchemaLocation": null,
            "sortWeight": 20,
            "label": name,
            "tooltipRows": [
                {"type": "value", "source": "accumulated", "format": {"unit": "bytes"}, "label": "linear memory at this time"},
                {"type": "value", "source": "count-range", "format": {"unit": "bytes"}, "label": "most in the graph"},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::{Store, example};

    /// What a reader shows: times in milliseconds and the sizes that the counts add up to.
    fn shown(counter: &Value) -> Vec<(f64, i64)> {
        let column = |name: &str| counter["samples"][name].as_array().unwrap().clone();
        let (times, mut counts) = (column("time"), column("count"));
        assert_eq!(
            (times.len(), counts.len()),
            (counts.len(), counter["samples"]["length"].as_u64().unwrap() as usize)
        );
        counts[0] = 0.into();
        let sizes = counts.iter().scan(0, |size, count| {
            *size += count.as_i64().unwrap();
            Some(*size)
        });
        times.iter().map(|time| time.as_f64().unwrap()).zip(sizes).collect()
    }

    #[test]
    fn sizes_are_steps_from_the_beginning_to_the_end() {
        let counters = table(&example());
        let names: Vec<&str> = counters.iter().map(|counter| counter["name"].as_str().unwrap()).collect();
        let other = format!("Linear memory of {}", example().stores[1].name);
        assert_eq!(names, ["Linear memory of app.wasm", &other]);
        let [a, b, c] = [17, 32, 4096].map(|pages: i64| pages << 16);
        let expected = [(0.0, 0), (1.0, 0), (1.0, a), (5.0, a), (5.0, b), (9.0, b), (9.0, c), (20.5, c)];
        assert_eq!(shown(&counters[0]), expected);
        assert_eq!(shown(&counters[1]).last(), Some(&(20.5, 0)), "it has gone");
        let threads: Vec<u64> = counters.iter().map(|counter| counter["mainThreadIndex"].as_u64().unwrap()).collect();
        assert_eq!(threads, [0, 1]);
    }

    #[test]
    fn many_stores_are_one_track_and_no_size_is_too_large() {
        let mut recording = example();
        let store = |number: u64| Store {
            name: number.to_string(),
            labels: Vec::new(),
            heap: None,
            memory: vec![MemorySize { time_ns: number, bytes: u64::MAX }, MemorySize { time_ns: u64::MAX, bytes: 0 }],
        };
        recording.stores = (0..300).map(store).collect();
        let counters = table(&recording);
        assert_eq!((counters.len(), &counters[0]["name"]), (1, &"Linear memory of 300 stores".into()));
        let shown = shown(&counters[0]);
        assert_eq!(shown.iter().map(|(_, size)| *size).max(), Some(300 * MOST_BYTES as i64));
        assert!(shown.is_sorted_by_key(|(time, _)| *time) && shown.last().unwrap().1 == 0);
    }

    #[test]
    fn without_memory_or_threads_there_are_none() {
        let mut recording = example();
        recording.threads.clear();
        assert!(table(&recording).is_empty());
        let mut recording = example();
        recording.stores.iter_mut().for_each(|store| store.memory.clear());
        assert!(table(&recording).is_empty());
    }
}
