//! What a sample stands for: half of the time back to the look at its thread before it, and half of the time on to the next.
//!
//! The whole time back would have a bias: of a guest that wakes, works and sleeps again, looks that fall late in its work have more of it
//! behind them than early ones.

/// The looks at one thread, on a clock of that thread.
#[derive(Debug)]
pub(crate) struct Weights<T> {
    /// When it was last looked at.
    at_ns: u64,
    is_first: bool,
    /// What was found then, and the time before that it stands for.
    open: Option<(T, u64)>,
}

impl<T> Weights<T> {
    /// The time from `at_ns` on is to be divided among looks.
    pub(crate) fn since(at_ns: u64) -> Self {
        Self { at_ns, is_first: true, open: None }
    }

    /// When it was last looked at, or since when its time counts.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The thread was looked at, and `found` is to be a sample if it is anything. Returns the sample before it, with all the time that it
    /// stands for.
    pub(crate) fn next(&mut self, at_ns: u64, found: Option<T>) -> Option<(T, u64)> {
        let gap = at_ns.saturating_sub(self.at_ns);
        // Before the first there is none to share with.
        let (before, after) = if self.is_first { (0, gap) } else { (gap / 2, gap - gap / 2) };
        self.at_ns = at_ns;
        self.is_first = false;
        let closed = self.open.take().map(|(sample, ns)| (sample, ns + before));
        self.open = found.map(|found| (found, after));
        closed
    }

    /// Returns the last sample: it stands for all the time until `at_ns`.
    pub(crate) fn end(&mut self, at_ns: u64) -> Option<(T, u64)> {
        let gap = at_ns.saturating_sub(self.at_ns);
        self.open.take().map(|(sample, ns)| (sample, ns + gap))
    }
}

#[cfg(test)]
mod tests {
    use super::Weights;

    #[test]
    fn all_time_is_divided() {
        let mut weights = Weights::since(100);
        assert_eq!(weights.next(110, Some('a')), None);
        assert_eq!(weights.next(130, Some('b')), Some(('a', 20)));
        // Nothing that counts was found: half of the time on both sides is the host's own.
        assert_eq!(weights.next(150, None), Some(('b', 20)));
        assert_eq!(weights.next(160, Some('c')), None);
        assert_eq!(weights.end(165), Some(('c', 10)));
        assert_eq!(weights.end(170), None);
    }

    /// Two equal halves of each wake, looked at where chance has it.
    #[test]
    fn work_at_the_end_of_a_wake_weighs_no_more_than_at_its_beginning() {
        let mut weights = Weights::since(0);
        let (mut early, mut late) = (0, 0);
        let mut add = |closed: Option<(bool, u64)>| match closed {
            Some((true, ns)) => early += ns,
            Some((false, ns)) => late += ns,
            None => {}
        };
        let mut random: u64 = 1;
        for wake in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let instant = (random >> 33) % 10_000;
            // It works for 2,000 of the 10,000 from one wake to the next.
            if instant < 2000 {
                add(weights.next(wake * 2000 + instant, Some(instant < 1000)));
            }
        }
        add(weights.end(100_000 * 2000));
        let share = early as f64 / (early + late) as f64;
        // Some 20,000 looks: five standard deviations are 0.018.
        assert!((share - 0.5).abs() < 0.018, "{share}");
    }
}
