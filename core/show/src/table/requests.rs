//! What the table says of a guest that was served: its requests, how long they took and what CPU time they cost.

use super::shorten;
use crate::escape::single_line;
use std::fmt::{self, Write};
use wlprof_recording::{Recording, RequestTotal, count_of};

/// Kinds that are shown, those with the most requests.
const SHOWN: usize = 10;

/// Writes it, if the guest was served.
pub(super) fn write(recording: &Recording, width: usize, text: &mut String) -> fmt::Result {
    let mut requests: Vec<&RequestTotal> = recording.meta.requests.iter().collect();
    if requests.is_empty() {
        return Ok(());
    }
    requests.sort_by_key(|total| std::cmp::Reverse(total.count));
    let all: u64 = requests.iter().map(|total| total.count).sum();
    let seconds = recording.meta.duration_ns as f64 / 1e9;
    writeln!(
        text,
        "\n{}, {:.0} a second; time of each, of 50, 90 and 99 of 100 and of all:",
        count_of(all, "request"),
        all as f64 / seconds
    )?;
    writeln!(text, "{:>10}{:>9}{:>9}{:>9}{:>9}{:>10}", "requests", "50 %", "90 %", "99 %", "longest", "CPU each")?;
    let mut shares = false;
    for total in requests.iter().take(SHOWN) {
        let [half, most, nearly_all] = total.latency_ns.map(time);
        let cpu_ns = recording.request_cpu_ns(total);
        shares |= cpu_ns.is_none();
        let cpu = cpu_ns.map_or_else(|| "–".to_owned(), time);
        let answer = total.answer().unwrap_or_default();
        let name = format!("{} {answer}", single_line(&total.request));
        let name = shorten(name.trim_end(), width.saturating_sub(58).max(20));
        writeln!(
            text,
            "{:>10}{half:>9}{most:>9}{nearly_all:>9}{:>9}{cpu:>10}  {name}",
            total.count,
            time(total.longest_ns)
        )?;
    }
    if shares {
        let cpu = time(recording.all_requests_cpu_ns());
        writeln!(text, "{all:>10}{:>46}  all together", cpu)?;
    }
    match requests.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(text, "{:>10} kinds more", more),
    }
}

/// A time with three digits.
fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => (ns as f64, "ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 1_234, 45_678, 987_654_321, 61_000_000_000].map(time);
        assert_eq!(times, ["0.00 ns", "1.23 µs", "45.7 µs", "988 ms", "61.0 s"]);
    }
}
