//! Shares of the time, and how sure samples make them.

use serde::{Deserialize, Serialize};

/// Standard deviations that 95 % of a normal distribution lie within.
pub(super) const Z_95: f64 = 1.959_964;

/// What draws stand for: the time, and what its share's error follows from.
///
/// A *draw* is one look at a thread: the samples of one tick together ([`Recording::draws`](super::Recording::draws)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Nanoseconds that the draws stand for.
    pub ns: u64,
    /// Sum of the squares of what each draw stands for, in square nanoseconds.
    squares: u128,
}

/// A share of the time, as it was estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The estimate, in percent.
    pub percent: f64,
    /// The truth is as near as that, in points, in 95 of 100 recordings.
    ///
    /// # Accuracy
    /// With draws of weights `w` that are in what the share is of (`x` = 1) or not (`x` = 0), the estimate `p` is `Σwx / Σw`. Its
    /// variance is that of a ratio, `Σw²(x−p)² / (Σw)²`, as if there were `n = p(1−p) / variance` draws of one weight; but no more
    /// of them than `(Σw)² / Σw²`, what weights alone leave: those of a few draws say little about weights. The bound is
    /// Wilson's for `n` draws, which holds for few of them and for shares of nothing and of all, too: it is not as far down as
    /// up, and what is told is the root mean square of the two. Of fewer than fifty draws it may be less than
    /// 90 of 100 recordings that it holds the truth in.
    ///
    /// Draws are taken to be independent of each other. Those of a guest that does one thing for many periods, and then
    /// another, are spread more evenly than chance would, and its shares are surer than told. A guest that does something in
    /// step with the samples is not seen evenly at all, and no bound tells that. Nor does it tell time that no sample stands
    /// for, or what sampling itself shifts.
    pub bound: f64,
}

impl Weight {
    /// Adds a draw that stands for so many nanoseconds.
    pub fn add_draw(&mut self, ns: u64) {
        self.add(Self { ns, squares: u128::from(ns) * u128::from(ns) });
    }

    /// Adds other draws.
    pub fn add(&mut self, other: Self) {
        self.ns = self.ns.saturating_add(other.ns);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Which share of `all` it is, whose draws it has some of.
    pub fn share_of(self, all: Self) -> Share {
        if all.ns == 0 {
            return Share { percent: 0.0, bound: 100.0 };
        }
        let (whole, squares) = (all.ns as f64, all.squares as f64);
        let share = self.ns as f64 / whole;
        let by_weights = whole * whole / squares.max(1.0);
        let variance = ((1.0 - 2.0 * share) * self.squares as f64 + share * share * squares) / (whole * whole);
        // Shares of nothing and of all vary as far as their own draws tell, which is not at all.
        let draws = match share * (1.0 - share) / variance {
            draws if draws.is_finite() && draws > 0.0 => draws.min(by_weights),
            _ => by_weights,
        };
        Share { percent: 100.0 * share, bound: 100.0 * wilson(share, draws) }
    }
}

/// How far the ends of Wilson's 95 % interval are from `share`, the part of `draws` equal draws that was found: the root mean
/// square of the two.
fn wilson(share: f64, draws: f64) -> f64 {
    let z_squared = Z_95 * Z_95;
    let shrink = 1.0 + z_squared / draws;
    let center = (share + z_squared / (2.0 * draws)) / shrink;
    let half = Z_95 / shrink * (share * (1.0 - share) / draws + z_squared / (4.0 * draws * draws)).sqrt();
    half.hypot(center - share)
}

impl Share {
    /// Standard error of the share, in points.
    pub fn standard_error(self) -> f64 {
        self.bound / Z_95
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers (splitmix64), the same in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        /// From 0 to 1.
        fn unit(&mut self) -> f64 {
            (self.next() >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    const PERIOD_NS: f64 = 1e6;

    /// How weights come about: a name, and the weight of a draw by two random numbers and by whether it is in the share.
    type Weights = (&'static str, fn(f64, f64) -> f64);

    const WEIGHTS: [Weights; 3] = [
        ("equal", |_, _| PERIOD_NS),
        ("jittered", |a, _| PERIOD_NS * (0.75 + 0.5 * a)),
        // A machine that others use, too: one tick in ten stands for others that were lost.
        ("of a busy machine", |a, b| if a < 0.1 { PERIOD_NS * (1.0 + 3.0 * b) } else { PERIOD_NS }),
    ];

    /// Percent of `trials` in which the truth, `share` of 1, is within the bound that `draws` draws give.
    fn coverage(random: &mut Random, (_, weigh): Weights, share: f64, draws: u64, trials: u32) -> f64 {
        let is_covered = |random: &mut Random| {
            let (mut part, mut all) = (Weight::default(), Weight::default());
            for _ in 0..draws {
                let ns = weigh(random.unit(), random.unit()) as u64;
                all.add_draw(ns);
                if random.unit() < share {
                    part.add_draw(ns);
                }
            }
            let found = part.share_of(all);
            (found.percent - 100.0 * share).abs() <= found.bound
        };
        let covered = (0..trials).filter(|_| is_covered(random)).count();
        100.0 * covered as f64 / f64::from(trials)
    }

    #[test]
    fn the_truth_is_within_the_bound_in_95_of_100_trials() {
        let mut random = Random(1);
        for weights in WEIGHTS {
            for (share, draws) in [(0.01, 4000), (0.03, 2000), (0.1, 800), (0.25, 400), (0.5, 400), (0.75, 400)] {
                let found = coverage(&mut random, weights, share, draws, 4000);
                println!("{}: {share} of {draws} draws: {found:.1} %", weights.0);
                assert!((93.0..=97.0).contains(&found), "{}: {share} of {draws} draws: {found:.1} %", weights.0);
            }
        }
    }

    /// Of few draws no bound is right in just 95 of 100 trials, since there are few results that they can have; and one that is as
    /// far down as up misses some that Wilson's interval has.
    #[test]
    fn of_few_draws_the_bound_is_about_right() {
        let mut random = Random(2);
        for (share, draws) in [(0.01, 100), (0.02, 200), (0.1, 50), (0.5, 20), (0.9, 30)] {
            for weights in WEIGHTS {
                let found = coverage(&mut random, weights, share, draws, 4000);
                println!("{}: {share} of {draws} draws: {found:.1} %", weights.0);
                assert!(found > 86.0, "{}: {share} of {draws} draws: {found:.1} %", weights.0);
            }
        }
    }

    #[test]
    fn weights_that_go_with_what_is_seen_are_in_the_bound() {
        let (mut part, mut all) = (Weight::default(), Weight::default());
        // Half of the time in draws that weigh ten times as much: there are fewer of them, so it is less sure.
        for draw in 0..1100 {
            let (ns, is_in) = if draw % 11 == 0 { (10_000_000, true) } else { (1_000_000, false) };
            all.add_draw(ns);
            if is_in {
                part.add_draw(ns);
            }
        }
        let (found, equal) = (part.share_of(all), 100.0 * wilson(0.5, 1100.0));
        // sqrt(0.25 (100 · 10² + 1000 · 1²)) / 2000 is 2.62 %.
        assert!((found.bound - 1.96 * 2.62).abs() < 0.05 && found.bound > 1.7 * equal, "{found:?}");
    }

    #[test]
    fn nothing_and_all_are_not_sure_either() {
        let (mut all, none) = (Weight::default(), Weight::default());
        (0..100).for_each(|_| all.add_draw(1_000_000));
        let (nothing, everything) = (none.share_of(all), all.share_of(all));
        assert_eq!((nothing.percent, everything.percent), (0.0, 100.0));
        // Nearly three in a hundred: the rule of three.
        assert!((2.5..3.0).contains(&nothing.bound) && (2.5..3.0).contains(&everything.bound), "{nothing:?}");
        assert_eq!(none.share_of(none), Share { percent: 0.0, bound: 100.0 });
    }
}
