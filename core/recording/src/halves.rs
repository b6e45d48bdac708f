//! Splits a recording in two, for servers that refuse a profile because it is too large.

use super::{HostCallSpan, MemorySize, Meta, Recording, Sample, Samples, Store, StoreId, TickCounts};
use std::collections::HashSet;

impl Recording {
    /// Splits the recording into two that together have every sample once. Returns `None` if there is nothing to split.
    ///
    /// A recording of time is split at the median time of its samples. The second half begins there, and its times count from there. Samples
    /// that all have one time are split by their count. A recording of memory ([`Recording::part`]), or of heaps and no samples, is split by the
    /// sites that allocate.
    ///
    /// Tables have what the half refers to. What is not known for each sample is in the second half: truncated stacks, ticks without a
    /// sample, requests and, in a recording of time, heaps.
    ///
    /// ```
    /// let recording = wlprof_recording::example();
    /// let [first, second] = recording.halves().unwrap();
    /// assert_eq!(first.samples().count() + second.samples().count(), recording.samples().count());
    /// assert_eq!(first.meta.duration_ns + second.meta.duration_ns, recording.meta.duration_ns);
    /// ```
    pub fn halves(&self) -> Option<[Self; 2]> {
        let is_of_memory = self.part.is_some() || self.samples().next().is_none();
        if is_of_memory { self.halves_of_memory() } else { self.halves_of_time() }
    }

    /// Splits a recording of time into one without heaps and one without samples. Returns `None` if it is one of these already, or of memory.
    /// Truncated stacks, ticks and requests are in the first.
    pub fn time_and_heaps(&self) -> Option<[Self; 2]> {
        if self.part.is_some() || !self.has_heaps() || self.samples().next().is_none() {
            return None;
        }
        let (mut time, mut heaps) = (self.clone(), self.clone());
        time.stores.iter_mut().for_each(|store| store.heap = None);
        heaps.threads.clear();
        (heaps.ticks, heaps.truncated) = (TickCounts::default(), Vec::new());
        heaps.meta.requests = Vec::new();
        Some([time, heaps].map(Self::with_used_tables))
    }

    fn halves_of_time(&self) -> Option<[Self; 2]> {
        let mut times: Vec<u64> = self.samples().map(|sample| sample.time_ns).collect();
        if times.len() < 2 {
            return None;
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        let first_ns = times[0];
        // Neither half is empty.
        let split = if median > first_ns { Some(median) } else { times.iter().copied().find(|time| *time > first_ns) };
        let Some(split_ns) = split else { return Some(self.halves_by_count(times.len() / 2)) };
        let is_first = |_: usize, sample: &Sample| sample.time_ns < split_ns;
        let [mut first, mut second] = self.divided(is_first);
        second.meta.start_unix_ms = self.meta.start_unix_ms.saturating_add(split_ns / 1_000_000);
        for thread in &mut second.threads {
            let samples = thread.samples.iter();
            thread.samples =
                samples.map(|sample| Sample { time_ns: sample.time_ns - split_ns, ..sample }).collect::<Samples>();
        }
        let threads = first.threads.iter_mut().zip(&mut second.threads);
        for ((of_first, of_second), whole) in threads.zip(&self.threads) {
            [of_first.host_calls, of_second.host_calls] = split_calls(&whole.host_calls, split_ns);
        }
        let stores = first.stores.iter_mut().zip(&mut second.stores);
        for (of_first, of_second) in stores {
            split_sizes(of_first, of_second, split_ns);
            of_second.heap = of_second.heap.take().map(|heap| heap.since(split_ns));
        }
        let duration_ns = self.meta.duration_ns.max(split_ns);
        (first.meta, second.meta) = split_meta(&self.meta, second.meta.start_unix_ms, [split_ns, duration_ns]);
        Some([first, second].map(Self::with_used_tables))
    }

    /// The first `count` samples, thread by thread, and the others. Both last as long as the whole.
    fn halves_by_count(&self, count: usize) -> [Self; 2] {
        let halves = self.divided(|number, _| number < count);
        halves.map(Self::with_used_tables)
    }

    fn halves_of_memory(&self) -> Option<[Self; 2]> {
        let stores = (0..).zip(&self.stores);
        let mut sites: Vec<_> = stores
            .flat_map(|(id, store)| store.heap_stacks().map(move |stack| (stack, id)).collect::<Vec<(u32, StoreId)>>())
            .collect();
        if sites.len() < 2 {
            return None;
        }
        // Sites of one stack are one row of a profile, and stay together as far as they can.
        sites.sort_unstable();
        let first: HashSet<_> = sites[..sites.len() / 2].iter().copied().collect();
        let of_threads: Vec<StoreId> = self.threads.iter().map(|thread| thread.store).collect();
        let halves = [true, false].map(|is_first| {
            let is_own = |stack, store| first.contains(&(stack, store)) == is_first;
            let mut half = self.clone();
            for (id, store) in (0..).zip(&mut half.stores) {
                store.restack(|stack| is_own(stack, id).then_some(stack));
            }
            for (thread, store) in half.threads.iter_mut().zip(&of_threads) {
                let samples = thread.samples.iter().filter(|sample| is_own(sample.stack, *store));
                thread.samples = samples.collect();
            }
            if is_first {
                half.ticks = TickCounts::default();
                half.truncated = Vec::new();
                half.meta.requests = Vec::new();
            }
            half.with_used_tables()
        });
        Some(halves)
    }

    /// Two copies that share the samples: `is_first` gets a sample and its number in all threads. What has no time of its own is in the second.
    fn divided(&self, is_first: impl Fn(usize, &Sample) -> bool) -> [Self; 2] {
        let (mut first, mut second) = (self.clone(), self.clone());
        let mut number = 0;
        let mut counts = [0, 0];
        let threads = first.threads.iter_mut().zip(&mut second.threads);
        for ((of_first, of_second), whole) in threads.zip(&self.threads) {
            (of_first.samples, of_second.samples) = (Samples::default(), Samples::default());
            for sample in whole.samples.iter() {
                let goes_first = is_first(number, &sample);
                number += 1;
                counts[usize::from(!goes_first)] += 1;
                (if goes_first { &mut of_first.samples } else { &mut of_second.samples }).push(sample);
            }
            of_first.host_calls = Vec::new();
        }
        first.ticks = TickCounts { fired: counts[0], sampled: counts[0], ..TickCounts::default() };
        second.ticks.sampled = counts[1];
        second.ticks.fired = second.ticks.accounted();
        first.truncated = Vec::new();
        first.meta.requests = Vec::new();
        first.stores.iter_mut().for_each(|store| (store.heap, store.memory) = (None, Vec::new()));
        [first, second]
    }

    fn with_used_tables(mut self) -> Self {
        self.keep_used();
        self
    }
}

/// The meta data of both halves: times in proportion to how long each half lasts, and all else in both.
fn split_meta(meta: &Meta, second_start_ms: u64, [split_ns, duration_ns]: [u64; 2]) -> (Meta, Meta) {
    let part = |ns: u64| (u128::from(ns) * u128::from(split_ns) / u128::from(duration_ns.max(1))) as u64;
    let first = Meta {
        duration_ns: split_ns.min(meta.duration_ns),
        cpu_ns: part(meta.cpu_ns),
        sampling_ns: part(meta.sampling_ns),
        unsampled_ns: part(meta.unsampled_ns),
        requests: Vec::new(),
        ..meta.clone()
    };
    let second = Meta {
        start_unix_ms: second_start_ms,
        duration_ns: meta.duration_ns - first.duration_ns,
        cpu_ns: meta.cpu_ns - first.cpu_ns,
        sampling_ns: meta.sampling_ns - first.sampling_ns,
        unsampled_ns: meta.unsampled_ns - first.unsampled_ns,
        ..meta.clone()
    };
    (first, second)
}

/// Host calls as each half sees them.
fn split_calls(calls: &[HostCallSpan], split_ns: u64) -> [Vec<HostCallSpan>; 2] {
    let before = calls.iter().filter(|call| call.start_ns < split_ns);
    let before = before.map(|call| HostCallSpan { end_ns: call.end_ns.min(split_ns), ..*call });
    let since = |time_ns: u64| time_ns.saturating_sub(split_ns);
    let after = calls.iter().filter(|call| call.end_ns > split_ns);
    let after = after.map(|call| HostCallSpan { start_ns: since(call.start_ns), end_ns: since(call.end_ns), ..*call });
    [before.collect(), after.collect()]
}

/// Sizes of a store's memory as each half sees them. `second` has all of them before.
fn split_sizes(first: &mut Store, second: &mut Store, split_ns: u64) {
    let sizes = std::mem::take(&mut second.memory);
    let before = sizes.partition_point(|size| size.time_ns <= split_ns);
    // The size at the beginning is the last one before.
    let at_split = before.saturating_sub(1);
    let since = |size: &MemorySize| MemorySize { time_ns: size.time_ns.saturating_sub(split_ns), ..*size };
    second.memory = sizes[at_split..].iter().map(since).collect();
    first.memory = sizes.into_iter().filter(|size| size.time_ns < split_ns).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapPart, Totals, example};
    use std::collections::BTreeMap;

    /// Self and total time of each function, by name and file.
    fn totals(recordings: &[&Recording]) -> BTreeMap<(String, Option<String>), (u64, u64)> {
        let mut sums = BTreeMap::<_, (u64, u64)>::new();
        for recording in recordings {
            for total in Totals::of(recording).functions {
                let function = &recording.functions[total.function as usize];
                let sum = sums.entry((function.name.clone(), function.file.clone())).or_default();
                sum.0 += total.self_time.ns;
                sum.1 += total.total_time.ns;
            }
        }
        sums
    }

    fn check_tables(recording: &Recording) {
        let used: HashSet<u32> = recording
            .samples()
            .map(|sample| sample.stack)
            .chain(recording.heap_stacks())
            .flat_map(|stack| recording.frame_ids(stack))
            .chain(recording.threads.iter().flat_map(|thread| thread.host_calls.iter().map(|call| call.frame)))
            .collect();
        assert_eq!(used.len(), recording.frames.len());
        assert!(recording.ticks.balanced());
    }

    #[test]
    fn halves_of_time_add_up() {
        let recording = example();
        let [first, second] = recording.halves().unwrap();
        assert_eq!(totals(&[&first, &second]), totals(&[&recording]));
        let counts = [&first, &second].map(|half| half.samples().count());
        assert_eq!(counts, [5, 6]);
        [&first, &second].into_iter().for_each(check_tables);
        let split_ns = first.meta.duration_ns;
        assert!(first.samples().all(|sample| sample.time_ns < split_ns));
        assert_eq!(second.meta.start_unix_ms, recording.meta.start_unix_ms + split_ns / 1_000_000);
        assert_eq!(second.samples().map(|sample| sample.time_ns).min(), Some(0));
        assert!(second.samples().all(|sample| sample.time_ns <= second.meta.duration_ns));
        assert_eq!(first.meta.cpu_ns + second.meta.cpu_ns, recording.meta.cpu_ns);
        assert_eq!(first.ticks.fired + second.ticks.fired, recording.ticks.fired);
        assert!(!first.has_heaps() && second.has_heaps());
        // It was 32 pages large from before the split.
        assert_eq!(second.stores[0].memory[0], MemorySize { time_ns: 0, bytes: 32 << 16 });
    }

    #[test]
    fn halves_of_halves_end_at_one_sample() {
        let recording = example();
        let mut parts = vec![recording.clone()];
        while let Some((place, halves)) =
            parts.iter().enumerate().find_map(|(place, part)| Some((place, part.halves()?)))
        {
            parts.splice(place..=place, halves);
        }
        assert_eq!(parts.len(), recording.samples().count());
        assert_eq!(totals(&parts.iter().collect::<Vec<_>>()), totals(&[&recording]));
    }

    #[test]
    fn samples_of_one_time_are_split_by_count() {
        let mut recording = example();
        for thread in &mut recording.threads {
            thread.samples = thread.samples.iter().map(|sample| Sample { time_ns: 9, ..sample }).collect();
        }
        let [first, second] = recording.halves().unwrap();
        assert_eq!([&first, &second].map(|half| half.samples().count()), [5, 6]);
        assert_eq!(totals(&[&first, &second]), totals(&[&recording]));
        recording.threads.clear();
        recording.stores.iter_mut().for_each(|store| store.heap = None);
        assert!(recording.halves().is_none());
    }

    #[test]
    fn time_and_heaps_are_split_each_in_its_way() {
        let recording = example();
        let [time, heaps] = recording.time_and_heaps().unwrap();
        assert_eq!(totals(&[&time]), totals(&[&recording]));
        assert!(!time.has_heaps() && heaps.samples().next().is_none());
        let memory = |recording: &Recording| recording.clone().of_memory(HeapPart::Held);
        assert_eq!(totals(&[&memory(&heaps)]), totals(&[&memory(&recording)]));
        let halves = heaps.halves().unwrap();
        assert_eq!(totals(&halves.each_ref().map(memory).each_ref()), totals(&[&memory(&recording)]));
        [&time, &heaps, &halves[0], &halves[1]].into_iter().for_each(check_tables);
        assert!([time, heaps].iter().all(|part| part.time_and_heaps().is_none()));
    }

    #[test]
    fn halves_of_memory_add_up() {
        for part in [HeapPart::Allocated, HeapPart::Held] {
            let recording = example().of_memory(part);
            let [first, second] = recording.halves().unwrap();
            assert_eq!(totals(&[&first, &second]), totals(&[&recording]));
            let bytes = |of: &Recording| -> f64 {
                of.stores.iter().filter_map(|store| Some(store.heap.as_ref()?.total(part).bytes)).sum()
            };
            assert_eq!(bytes(&first) + bytes(&second), bytes(&recording));
            assert_eq!([&first, &second].map(|half| half.heap_stacks().count()), [2, 2]);
            [&first, &second].into_iter().for_each(check_tables);
            let [single, _] = first.halves().unwrap();
            assert!(single.halves().is_none());
        }
    }
}
