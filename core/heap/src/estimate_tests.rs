//! Sampled blocks stand for all: sums are compared with the truth, and their errors with the variance that they claim.

use super::allocators::Call;
use super::blocks::{Blocks, Told};
use super::instructions::FILTER_BYTES;
use super::rate::Rate;

fn sample(size: u64, block: u32) -> Told {
    Told { call: Call::Malloc, size, block, before: 0, is_sample: true, time_ns: 7 }
}

/// Allocates blocks of these sizes, frees most of them at once, and compares what is found with the truth. Gives how far the sums of bytes
/// are from it, of what was allocated and of what is held, and the variances that they claim.
fn simulated(rate: u64, sizes: impl Iterator<Item = u64>) -> [(f64, f64); 2] {
    let mut filter = vec![0; FILTER_BYTES as usize];
    let mut blocks = Blocks::new(Rate::bytes(rate));
    let mut countdown = blocks.draw();
    let mut truth = [0_u64; 2];
    for (number, size) in (1_u32..).zip(sizes) {
        truth[0] += size;
        countdown -= size as i64;
        if countdown < 0 {
            blocks.allocated(&sample(size, 16 * number), &mut filter, || "a");
            countdown = blocks.draw();
        }
        // Some of each size are kept.
        match number / 10 % 16 {
            0 => truth[1] += size,
            _ => blocks.freed(16 * number, &mut filter),
        }
    }
    let (_, found) = blocks.sites().next().unwrap();
    [(found.allocated, truth[0]), (found.held, truth[1])]
        .map(|(found, truth)| (found.bytes - truth as f64, found.variance))
}

/// Sizes from 8 to 4,096 bytes.
fn sizes(count: u32) -> impl Iterator<Item = u64> {
    (0..count).map(|number| 8_u64 << (number % 10))
}

#[test]
fn the_first_thousand_blocks_are_known_exactly() {
    assert_eq!(simulated(512 << 10, sizes(1000)), [(0.0, 0.0); 2]);
    let [(_, variance), _] = simulated(512 << 10, sizes(10_000));
    assert!(variance > 0.0, "of ten times as many they are estimates");
}

#[test]
fn estimates_are_right_on_average_and_as_far_off_as_they_say() {
    // Each is exact at first. Then the rate doubles, in two of them up to what was asked for.
    const RUNS: u32 = 400;
    for rate in [1000, 4 << 10, 512 << 10] {
        let mut sums = [(0.0, 0.0, 0.0); 2];
        for _ in 0..RUNS {
            // 8.2 MB.
            for (sum, (off, variance)) in sums.iter_mut().zip(simulated(rate, sizes(10_000))) {
                *sum = (sum.0 + off, sum.1 + variance, sum.2 + off * off);
            }
        }
        for (off, variance, squares) in sums {
            // The mean of so many is normal: it is beyond five standard deviations once in two million runs of this.
            assert!(off.abs() < 5.0 * variance.sqrt(), "{rate}: {off} of ±{}", variance.sqrt());
            // Squares vary by √2 each, so that their mean is within 7 % of the variance, five times which is 35.
            let ratio = squares / variance;
            assert!((0.65..1.35).contains(&ratio), "{rate}: errors are {ratio} of what is said of them");
        }
    }
}

#[test]
fn small_blocks_are_counted_by_the_few_that_are_sampled() {
    let mut filter = vec![0; FILTER_BYTES as usize];
    let mut blocks = Blocks::new(Rate::bytes(1000));
    let mut countdown = blocks.draw();
    let count = 200_000;
    for (number, size) in (1_u32..).zip(sizes(count)) {
        countdown -= size as i64;
        if countdown < 0 {
            blocks.allocated(&sample(size, 16 * number), &mut filter, || "a");
            countdown = blocks.draw();
        }
    }
    let found = blocks.sites().next().unwrap().1.allocated.blocks;
    // The smallest are few among the samples: their error is the largest.
    let relative = 5.0 / (f64::from(count) / 10.0 * 8.0 / 1000.0).sqrt();
    assert!((found / f64::from(count) - 1.0).abs() < relative, "{found} of {count}");
}
