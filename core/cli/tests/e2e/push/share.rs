//! Shares of guests that work three times as long in `heavy` as in `light`, judged by what servers were sent.

use super::receiver::{Message, sums};
use crate::sampled::Shares;
use serde_json::Value;

/// How far a share may be off by itself, in points.
const POINTS: f64 = 1.0;

const SAMPLES: &str = "samples/count";

fn profiles<'m>(messages: &[&'m Message]) -> impl Iterator<Item = &'m Value> {
    messages.iter().flat_map(|message| message.profiles())
}

/// How many samples there are in all messages.
pub(super) fn samples_of(messages: &[&Message]) -> i64 {
    profiles(messages).filter_map(|profile| profile["total"][SAMPLES].as_i64()).sum()
}

/// Checks the shares of samples and of time.
pub(super) fn check_shares(messages: &[&Message]) {
    let count = |message: &Message, sample_type: &str, function: &str| {
        sums(message.profiles(), sample_type, "functions").get(function).copied().unwrap_or_default() as u64
    };
    let (mut samples, mut times) = (Vec::new(), Vec::new());
    for message in messages {
        for function in ["heavy", "light"] {
            let (number, time) = (count(message, SAMPLES, function), count(message, "cpu/nanoseconds", function));
            samples.extend((0..number).map(|_| (function, 1)));
            // A server does not see what each sample stands for.
            times.extend((0..number).map(|_| (function, time / number)));
        }
    }
    Shares::of(samples).near("heavy", 75.0, POINTS).unwrap();
    let times = Shares::of(times);
    // Samples of one window differ, which makes chance larger than their mean shows.
    let (found, bound) = (times.percent("heavy"), POINTS + 2.0 * times.chance(75.0));
    assert!((found - 75.0).abs() <= bound, "{found} % of the time, truth 75 ± {bound} %");
}
