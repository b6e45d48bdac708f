//! For threads that are read where they call back: which ticks they have answered, what an answer stands for, how late it was.

use super::super::os::clock::monotonic_ns;
use super::Conserved;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Delays from 2^n nanoseconds on are counted together.
const DELAYS: usize = 40;

/// How late the answers of a session's threads were at checks: how many came after so long.
pub(in crate::sampler) struct Delays([AtomicU64; DELAYS]);

/// The ticks that a thread is asked to answer, and what it has answered of them.
pub(in crate::sampler) struct Answers {
    delays: Arc<Delays>,
    /// What all of its ticks stand for, in nanoseconds.
    asked_ns: AtomicU64,
    /// Of those, what counts only if the thread stood in wasm then: it was without a processor.
    standing_ns: AtomicU64,
    /// When the last of them was.
    last_ns: AtomicU64,
    /// What it stands for.
    interval_ns: AtomicU64,
    /// [`Answers::asked_ns`] at the last tick that it has answered.
    answered_ns: AtomicU64,
    /// That at the last tick when it went into host code, or left it.
    crossed_ns: AtomicU64,
    /// What its samples stand for.
    pub(in crate::sampler) conserved: Conserved,
}

impl Delays {
    pub(in crate::sampler) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DELAYS])
    }

    /// How late half of the answers at checks were at most, and 99 of 100, in nanoseconds: up to twice as much as they were. `None`
    /// without any.
    pub(in crate::sampler) fn percentiles(&self) -> Option<(u64, u64)> {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let up_to = |percent: u64| {
            let mut seen = 0;
            let bucket = counts.iter().position(|count| {
                seen += count;
                seen * 100 >= all * percent
            });
            bucket.map_or(0, |bucket| 2 << bucket)
        };
        (all > 0).then(|| (up_to(50), up_to(99)))
    }
}

impl Answers {
    /// Of a thread that has been asked nothing yet.
    pub(in crate::sampler) fn new(delays: Arc<Delays>) -> Self {
        Self {
            delays,
            asked_ns: AtomicU64::new(0),
            standing_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            interval_ns: AtomicU64::new(0),
            answered_ns: AtomicU64::new(0),
            crossed_ns: AtomicU64::new(0),
            conserved: Conserved::default(),
        }
    }

    /// Asks for a sample that stands for `ns`, of a thread that runs or `is_standing` without a processor. One thread calls this, before it
    /// has the guest call back.
    pub(in crate::sampler) fn ask(&self, ns: u64, is_standing: bool) {
        if is_standing {
            self.standing_ns.fetch_add(ns, Ordering::Relaxed);
        }
        self.ask_at(ns, monotonic_ns());
    }

    fn ask_at(&self, ns: u64, now_ns: u64) {
        self.last_ns.store(now_ns, Ordering::Relaxed);
        self.interval_ns.store(ns, Ordering::Relaxed);
        // Who sees that there is another one sees when it was.
        self.asked_ns.fetch_add(ns, Ordering::Release);
    }

    /// The thread goes into host code, or leaves it, which `leaves_host` says: the time of the ticks that came since it last did and are not
    /// answered. `None` if there are none.
    pub(in crate::sampler) fn cross(&self, leaves_host: bool) -> Option<u64> {
        let asked_ns = self.asked_ns.load(Ordering::Acquire);
        let crossed_ns = self.crossed_ns.load(Ordering::Relaxed);
        if crossed_ns == asked_ns {
            // At nearly every call.
            return None;
        }
        // The thread's own.
        self.crossed_ns.store(asked_ns, Ordering::Relaxed);
        let since_ns = asked_ns - crossed_ns.max(self.answered_ns.load(Ordering::Relaxed));
        // A thread that has slept and waits for a processor is not where it used one.
        let standing_ns = self.standing_ns.swap(0, Ordering::Relaxed);
        Some(if leaves_host { since_ns.saturating_sub(standing_ns) } else { since_ns }).filter(|ns| *ns > 0)
    }

    /// Answers at a check the ticks that came in wasm since it was entered. Gives the time that they stand for. `None` if there are none.
    pub(in crate::sampler) fn answer_at_check(&self) -> Option<u64> {
        let asked_ns = self.asked_ns.load(Ordering::Acquire);
        let answered_ns = self.answered_ns.swap(asked_ns, Ordering::Relaxed);
        self.standing_ns.store(0, Ordering::Relaxed);
        Some(asked_ns - answered_ns.max(self.crossed_ns.load(Ordering::Relaxed))).filter(|ns| *ns > 0)
    }

    /// Ticks of that time, up to the last one, are answered in the guest's code now: notes how late.
    pub(in crate::sampler) fn note_delay(&self, ns: u64) {
        self.note_delay_at(ns, monotonic_ns());
    }

    fn note_delay_at(&self, ns: u64, now_ns: u64) {
        let since_last_ns = now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed));
        // As old as the first of them, which came as long before the last as what they stand for, more or less.
        let late_ns = since_last_ns + ns.saturating_sub(self.interval_ns.load(Ordering::Relaxed));
        self.delays.0[(late_ns.max(1).ilog2() as usize).min(DELAYS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The guest goes on where it was sampled: what ticked meanwhile asks for no sample, since it has not run. Else samples that take longer
    /// than a tick would follow each other check by check.
    pub(in crate::sampler) fn goes_on(&self) {
        self.answered_ns.store(self.asked_ns.load(Ordering::Acquire), Ordering::Relaxed);
        self.standing_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 1_000_000;

    /// Asks as ticks at a steady rate do.
    fn tick(answers: &Answers) {
        answers.ask_at(TICK_NS, answers.last_ns.load(Ordering::Relaxed) + TICK_NS);
    }

    fn answers() -> Answers {
        Answers::new(Arc::new(Delays::new()))
    }

    #[test]
    fn each_tick_is_answered_once_in_the_host_or_at_a_check() {
        let answers = answers();
        assert_eq!(answers.answer_at_check(), None);
        tick(&answers);
        assert_eq!(answers.answer_at_check(), Some(TICK_NS));
        assert_eq!(answers.answer_at_check(), None);
        assert_eq!(answers.cross(false), None, "the one in wasm is answered");
        tick(&answers);
        tick(&answers);
        assert_eq!(answers.cross(true), Some(2 * TICK_NS));
        assert_eq!(answers.answer_at_check(), None);
        tick(&answers);
        assert_eq!(answers.cross(false), Some(TICK_NS), "wasm calls the host before it comes to a check");
        assert_eq!(answers.cross(true), None);
        tick(&answers);
        answers.goes_on();
        assert_eq!((answers.cross(false), answers.answer_at_check()), (None, None), "it came while a sample was taken");
    }

    #[test]
    fn a_thread_without_a_processor_counts_where_it_stands_in_wasm() {
        let answers = answers();
        answers.ask(TICK_NS, true);
        answers.ask(TICK_NS, false);
        assert_eq!(answers.cross(true), Some(TICK_NS), "it had slept, and then called");
        answers.ask(TICK_NS, true);
        assert_eq!(answers.cross(false), Some(TICK_NS));
        answers.ask(TICK_NS, true);
        assert_eq!(answers.answer_at_check(), Some(TICK_NS));
        answers.ask(TICK_NS, true);
        assert_eq!(answers.cross(true), None);
    }

    #[test]
    fn an_answer_stands_for_its_ticks_and_is_as_late_as_the_first_tick_is_old() {
        let answers = answers();
        (0..5).for_each(|_| tick(&answers));
        let now_ns = answers.last_ns.load(Ordering::Relaxed) + TICK_NS / 2;
        assert_eq!(answers.answer_at_check(), Some(5 * TICK_NS));
        answers.note_delay_at(5 * TICK_NS, now_ns);
        let (late_ns, _) = answers.delays.percentiles().unwrap();
        assert!((4 * TICK_NS + TICK_NS / 2..=9 * TICK_NS).contains(&late_ns), "{late_ns}");
        tick(&answers);
        answers.cross(false);
        assert_eq!(answers.answer_at_check(), None, "it came before wasm was entered");
    }

    #[test]
    fn delays_are_never_reported_shorter_than_they_were() {
        let delays = Delays::new();
        assert_eq!(delays.percentiles(), None);
        delays.0[3].fetch_add(98, Ordering::Relaxed);
        delays.0[20].fetch_add(2, Ordering::Relaxed);
        assert_eq!(delays.percentiles(), Some((16, 2 << 20)));
    }
}
