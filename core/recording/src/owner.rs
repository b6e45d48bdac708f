//! What the owner of some stores may see of a profile of many: those stores, and nothing of the host's or of others'.

use super::numbers::Numbers;
use super::unused::UsedNumbers;
use super::{Meta, PauseStats, Recording, TickCounts};

impl Recording {
    /// The samples of the stores that have this label, with what they refer to and nothing else: no other store, module, function or
    /// label, no note, no argument of the host's, no name or id of its threads. Host calls are the guest's own imports, and stay.
    ///
    /// # Accuracy
    /// CPU time is that of the samples. What was not sampled, which stacks are not whole, how far the rate was lowered and what sampling cost
    /// is counted for all stores together, and not told.
    #[must_use]
    pub fn of_label(mut self, name: &str, value: &str) -> Self {
        let is_own = |labels: &[(String, String)]| labels.iter().any(|(key, text)| key == name && text == value);
        let own: Vec<bool> = self.stores.iter().map(|store| is_own(&store.labels)).collect();
        let threads: Vec<bool> = self.threads.iter().map(|thread| own[thread.store as usize]).collect();
        let (stores, threads) = (Numbers::keeping(&own), Numbers::keeping(&threads));
        stores.retain(&mut self.stores);
        threads.retain(&mut self.threads);
        for (number, thread) in (1..).zip(&mut self.threads) {
            thread.store = stores.new_of(thread.store);
            thread.name = format!("thread {number}");
            thread.tid = number;
        }
        self.keep_used();
        let cpu_ns = self.samples().map(|sample| sample.cpu_delta_ns).fold(0, u64::saturating_add);
        let sampled = self.samples().count() as u64;
        self.ticks = TickCounts { fired: sampled, sampled, ..TickCounts::default() };
        self.truncated = Vec::new();
        self.meta = Meta {
            guest: value.to_owned(),
            arguments: Vec::new(),
            cpu_ns,
            sampling_ns: 0,
            unsampled_ns: 0,
            pause: PauseStats::default(),
            allowed_hz: self.meta.requested_hz,
            notes: Vec::new(),
            requests: Vec::new(),
            ..self.meta
        };
        self
    }

    /// Leaves out what no sample and no host call refers to, of all tables but those of stores and threads.
    pub(super) fn keep_used(&mut self) {
        let mut used = UsedNumbers {
            stacks: vec![false; self.stacks.len()],
            frames: vec![false; self.frames.len()],
            labels: vec![false; self.label_sets.len()],
        };
        used.mark(&self.threads, &self.stores, &self.stacks);
        let [_, frames, _] = used.keep(&mut self.stacks, &mut self.label_sets, &mut self.threads, &mut self.stores);
        frames.retain(&mut self.frames);
        let mut functions = vec![false; self.functions.len()];
        let mut modules = vec![false; self.modules.len()];
        for frame in &self.frames {
            frame.origin.module().into_iter().for_each(|module| modules[module as usize] = true);
            frame.lines.iter().for_each(|line| functions[line.function as usize] = true);
        }
        let functions = Numbers::keeping(&functions);
        functions.retain(&mut self.functions);
        let of_functions = self.functions.iter().filter_map(|function| function.module);
        of_functions.for_each(|module| modules[module as usize] = true);
        let modules = Numbers::keeping(&modules);
        modules.retain(&mut self.modules);
        for frame in &mut self.frames {
            frame.origin = frame.origin.in_module(|module| modules.new_of(module));
            frame.lines.iter_mut().for_each(|line| line.function = functions.new_of(line.function));
        }
        for function in &mut self.functions {
            function.module = function.module.map(|module| modules.new_of(module));
        }
        let shown: Vec<&String> = self.functions.iter().filter_map(|function| function.file.as_ref()).collect();
        self.sources.retain(|file, _| shown.contains(&file));
    }
}
