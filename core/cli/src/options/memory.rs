//! Options of what is profiled of a guest's memory.

use clap::Args;
use wlprof::heap::{NamedAllocator, Rate};

/// Whether what the guest allocates is profiled, and how.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// Profile what the guest allocates and what it still holds
    ///
    /// For guests that are linked with C's library (C, C++, Rust, CPython), whose allocators are made to report a sample of their calls, and
    /// for Go.
    #[arg(long, help_heading = "Memory")]
    pub(crate) memory: bool,
    /// Bytes that are allocated between two samples, on average: 524288, or 512KiB; 1 for every allocation
    ///
    /// The first 1,024 allocations are all samples, and later ones come ever further apart up to this rate. [default: 512KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "memory", hide_short_help = true, help_heading = "Memory")]
    memory_rate: Option<u64>,
    /// The functions that allocate and free, where they have other names than C's: malloc=my_malloc, or free=17 by its index; may repeat
    #[arg(
        long,
        value_name = "CALL=FUNCTION",
        requires = "memory",
        hide_short_help = true,
        value_delimiter = ',',
        help_heading = "Memory"
    )]
    alloc_functions: Vec<NamedAllocator>,
}

impl MemoryOptions {
    /// How often, if at all.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.memory.then(|| self.memory_rate.map_or(Rate::DEFAULT, Rate::bytes))
    }

    /// How often, if at all, and by which functions, if any are named.
    pub(crate) fn heap(&self) -> Option<(Rate, Vec<NamedAllocator>)> {
        Some((self.rate()?, self.alloc_functions.clone()))
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    const MOST: u64 = 1 << 40;
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].trim_start() {
        "" | "B" => Some(1),
        "K" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        _ => None,
    };
    let bytes = text[..digits].parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.filter(|bytes| (1..=MOST).contains(bytes)).ok_or_else(|| "expected bytes, as in 4096, 64KiB or 1MiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_with_or_without_a_unit() {
        let read = ["1", "4096", "64KiB", "64 K", "2M"].map(|text| parse_bytes(text).unwrap());
        assert_eq!(read, [1, 4096, 65_536, 65_536, 2 << 20]);
        for bad in ["0", "", "-1", "KiB", "1GiB ", "1e6", "99999999999999999999", "2000000000M"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
