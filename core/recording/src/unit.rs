//! What samples stand for, in words.

use super::{Clock, HeapPart, Recording};

/// What the weights of samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of that clock.
    Time(Clock),
    /// Bytes.
    Memory(HeapPart),
}

impl Recording {
    /// What [`Sample::period_ns`](super::Sample::period_ns) is.
    pub fn unit(&self) -> Unit {
        self.part.map_or(Unit::Time(self.meta.clock), Unit::Memory)
    }
}

impl Unit {
    /// So much of it, as in `1.25 s of CPU time` and `3.0 MiB allocated`.
    pub fn amount(self, value: u64) -> String {
        match self {
            Self::Time(clock) => format!("{:.2} s of {clock}", value as f64 / 1e9),
            Self::Memory(part) => format!("{} {}", bytes(value as f64), part.participle()),
        }
    }
}

/// A number of bytes with its unit, as in `3.0 MiB`.
pub fn bytes(bytes: f64) -> String {
    let (scaled, unit) = scaled(bytes);
    if unit == "B" { format!("{scaled:.0} B") } else { format!("{scaled:.1} {unit}") }
}

/// A number and what it counts, as in `1 sample` and `2 samples`.
pub fn count_of(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// As many of the largest unit that is not more than it.
pub fn scaled(bytes: f64) -> (f64, &'static str) {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes;
    for unit in &UNITS[..4] {
        // What would be shown as 1024.0 is 1.0 of the next.
        if scaled.abs() < 1023.95 {
            return (scaled, unit);
        }
        scaled /= 1024.0;
    }
    (scaled, UNITS[4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|count| count_of(count, "sample")), ["0 samples", "1 sample", "2 samples"]);
    }

    #[test]
    fn amounts_are_shown_in_their_units() {
        assert_eq!(Unit::Time(Clock::Cpu).amount(1_250_000_000), "1.25 s of CPU time");
        assert_eq!(Unit::Memory(HeapPart::Held).amount(3 << 20), "3.0 MiB still held");
        let shown = [0.0, 1023.0, 1024.0, 1024.0 * 1023.99, (7_u64 << 40) as f64].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "7.0 TiB"]);
    }
}
