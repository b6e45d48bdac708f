//! The same again and again, in random order and sampled as hard as can be.
//!
//! `WLPROF_STRESS_SECONDS` has a test go on for so long, if it is the only one that runs. `WLPROF_STRESS_SEED` begins as another run did.

mod guests;
mod stores;

use std::env;
use std::time::{Duration, SystemTime};

struct Random(u64);

impl Random {
    /// Begins with what was asked for, or else with the time, and says so where it is seen if the test fails.
    fn new() -> Self {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = number("WLPROF_STRESS_SEED").unwrap_or_else(now) | 1;
        eprintln!("WLPROF_STRESS_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// One that goes its own way.
    fn another(&mut self) -> Self {
        Self(self.below(u64::MAX) | 1)
    }
}

/// How long a test is to go on, if anybody has said so.
fn length() -> Option<Duration> {
    number("WLPROF_STRESS_SECONDS").map(Duration::from_secs)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}
