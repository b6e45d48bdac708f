//! For threads that are read where they call back: which ticks they have answered, what an answer stands for, how late it was.

use super::super::os::clock::monotonic_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Delays from 2^n nanoseconds on are counted together.
const DELAYS: usize = 40;

/// The ticks that all threads of a session are asked to answer.
pub(in crate::sampler) struct Ticks {
    /// The sum of the times that all of them ended, in nanoseconds: from the one before, or from a time that counts for nothing.
    ticked_ns: AtomicU64,
    last_ns: AtomicU64,
    /// The time that the last one ended.
    interval_ns: AtomicU64,
    /// How many answers at checks came so late.
    delays: [AtomicU64; DELAYS],
}

/// What a thread has answered of them.
pub(in crate::sampler) struct Answers {
    ticks: Arc<Ticks>,
    /// [`Ticks::ticked_ns`] at the last tick that it has answered.
    answered_ns: AtomicU64,
    /// That at the last tick when it went into host code, or left it.
    crossed_ns: AtomicU64,
}

impl Ticks {
    pub(in crate::sampler) fn new() -> Self {
        Self {
            ticked_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(monotonic_ns()),
            interval_ns: AtomicU64::new(0),
            delays: [const { AtomicU64::new(0) }; DELAYS],
        }
    }

    /// The time since the last one counts for nothing: nobody ran a guest, or wanted samples.
    pub(in crate::sampler) fn skip(&self) {
        self.last_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Another one. To be called by one thread alone.
    pub(in crate::sampler) fn tick(&self) {
        self.tick_at(monotonic_ns());
    }

    fn tick_at(&self, now_ns: u64) {
        let before_ns = self.last_ns.swap(now_ns, Ordering::Relaxed);
        // However coarse the clock is, a tick is one.
        let interval_ns = now_ns.saturating_sub(before_ns).max(1);
        self.interval_ns.store(interval_ns, Ordering::Relaxed);
        // Who sees that there is another one sees when it was.
        self.ticked_ns.fetch_add(interval_ns, Ordering::Release);
    }

    /// How late half of the answers at checks were at most, and 99 of 100, in nanoseconds: up to twice as much as they were. `None`
    /// without any.
    pub(in crate::sampler) fn delays(&self) -> Option<(u64, u64)> {
        let counts: Vec<u64> = self.delays.iter().map(|count| count.load(Ordering::Relaxed)).collect();
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
    /// Of a thread that has to answer none of those before.
    pub(in crate::sampler) fn new(ticks: Arc<Ticks>) -> Self {
        let ticked_ns = ticks.ticked_ns.load(Ordering::Acquire);
        Self { ticks, answered_ns: AtomicU64::new(ticked_ns), crossed_ns: AtomicU64::new(ticked_ns) }
    }

    /// The thread goes into host code, or leaves it: the time of the ticks that came since it last did and are not answered. `None` if
    /// there are none.
    pub(in crate::sampler) fn cross(&self) -> Option<u64> {
        let ticked_ns = self.ticks.ticked_ns.load(Ordering::Acquire);
        let crossed_ns = self.crossed_ns.load(Ordering::Relaxed);
        if crossed_ns == ticked_ns {
            // At nearly every call.
            return None;
        }
        // The thread's own.
        self.crossed_ns.store(ticked_ns, Ordering::Relaxed);
        Some(ticked_ns - crossed_ns.max(self.answered_ns.load(Ordering::Relaxed))).filter(|ns| *ns > 0)
    }

    /// Answers at a check the ticks that came in wasm since it was entered. Gives their time, which is the most that the answer may stand
    /// for: there was no check between the first of them and this one. `None` if there are none.
    pub(in crate::sampler) fn answer_at_check(&self) -> Option<u64> {
        let ticked_ns = self.ticks.ticked_ns.load(Ordering::Acquire);
        let answered_ns = self.answered_ns.swap(ticked_ns, Ordering::Relaxed);
        Some(ticked_ns - answered_ns.max(self.crossed_ns.load(Ordering::Relaxed))).filter(|ns| *ns > 0)
    }

    /// Ticks of that time, up to the last one, are answered in the guest's code now: notes how late.
    pub(in crate::sampler) fn note_delay(&self, ns: u64) {
        self.note_delay_at(ns, monotonic_ns());
    }

    fn note_delay_at(&self, ns: u64, now_ns: u64) {
        let Ticks { last_ns, interval_ns, delays, .. } = &*self.ticks;
        let since_last_ns = now_ns.saturating_sub(last_ns.load(Ordering::Relaxed));
        // As old as the first of them, which had a time as long as the last one's, more or less.
        let late_ns = since_last_ns + ns.saturating_sub(interval_ns.load(Ordering::Relaxed));
        delays[(late_ns.max(1).ilog2() as usize).min(DELAYS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The guest goes on where it was sampled: what ticked meanwhile asks for no sample, since it has not run. Else samples that take longer
    /// than a tick would follow each other check by check.
    pub(in crate::sampler) fn goes_on(&self) {
        self.answered_ns.store(self.ticks.ticked_ns.load(Ordering::Acquire), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 1_000_000;

    /// Ticks at a steady rate from here on.
    fn tick(ticks: &Ticks) {
        ticks.tick_at(ticks.last_ns.load(Ordering::Relaxed) + TICK_NS);
    }

    #[test]
    fn each_tick_is_answered_once_in_the_host_or_at_a_check() {
        let ticks = Arc::new(Ticks::new());
        tick(&ticks);
        let answers = Answers::new(ticks.clone());
        assert_eq!(answers.answer_at_check(), None, "it was before the thread came");
        tick(&ticks);
        assert_eq!(answers.answer_at_check(), Some(TICK_NS));
        assert_eq!(answers.answer_at_check(), None);
        assert_eq!(answers.cross(), None, "the one in wasm is answered");
        tick(&ticks);
        tick(&ticks);
        assert_eq!(answers.cross(), Some(2 * TICK_NS));
        assert_eq!(answers.answer_at_check(), None);
        tick(&ticks);
        assert_eq!(answers.cross(), Some(TICK_NS), "wasm calls the host before it comes to a check");
        assert_eq!(answers.cross(), None);
        tick(&ticks);
        answers.goes_on();
        assert_eq!((answers.cross(), answers.answer_at_check()), (None, None), "it came while a sample was taken");
    }

    #[test]
    fn an_answer_stands_for_the_time_without_a_check_and_is_as_late_as_the_first_tick_is_old() {
        let ticks = Arc::new(Ticks::new());
        let answers = Answers::new(ticks.clone());
        (0..5).for_each(|_| tick(&ticks));
        let now_ns = ticks.last_ns.load(Ordering::Relaxed) + TICK_NS / 2;
        assert_eq!(answers.answer_at_check(), Some(5 * TICK_NS));
        answers.note_delay_at(5 * TICK_NS, now_ns);
        let (late_ns, _) = ticks.delays().unwrap();
        assert!((4 * TICK_NS + TICK_NS / 2..=9 * TICK_NS).contains(&late_ns), "{late_ns}");
        // What is skipped is in no tick.
        ticks.last_ns.fetch_add(9 * TICK_NS, Ordering::Relaxed);
        tick(&ticks);
        assert_eq!(answers.answer_at_check(), Some(TICK_NS));
        tick(&ticks);
        answers.cross();
        assert_eq!(answers.answer_at_check(), None, "it came before wasm was entered");
    }

    #[test]
    fn delays_are_never_told_shorter_than_they_were() {
        let ticks = Ticks::new();
        assert_eq!(ticks.delays(), None);
        ticks.delays[3].fetch_add(98, Ordering::Relaxed);
        ticks.delays[20].fetch_add(2, Ordering::Relaxed);
        assert_eq!(ticks.delays(), Some((16, 2 << 20)));
    }
}
