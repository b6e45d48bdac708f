//! What both targets take in: a fuzzer's bytes, of which whatever is missing is zero, and real modules.
#![allow(dead_code, reason = "each target uses a part")]

pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let length = N.min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        array[..length].copy_from_slice(taken);
        self.0 = rest;
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// A module that `cargo xtask test-fixtures` builds.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: run `cargo xtask test-fixtures`", path.display()))
}
