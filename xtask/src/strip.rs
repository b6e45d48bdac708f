//! Takes from wasm modules what they run without, as programs that are shipped often lack it.

use anyhow::{Context, Result};

/// The module without debug information, names and all else that it runs without.
pub(crate) fn without_custom_sections(wasm: &[u8]) -> Result<Vec<u8>> {
    const HEADER: usize = 8;
    let mut stripped = wasm.get(..HEADER).context("the module has no header")?.to_vec();
    let mut at = HEADER;
    while let Some(&id) = wasm.get(at) {
        let (mut size, mut next) = (0, at + 1);
        for shift in (0..35).step_by(7) {
            let byte = *wasm.get(next).context("the module ends in the middle of a section")?;
            next += 1;
            size |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let section = wasm.get(at..next + size).context("the module ends in the middle of a section")?;
        if id != 0 {
            stripped.extend_from_slice(section);
        }
        at = next + size;
    }
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_custom_sections_are_dropped() -> Result<()> {
        let header = b"\0asm\x01\0\0\0";
        let (types, custom) = (b"\x01\x04\x01\x60\0\0", b"\0\x81\0\x00");
        let module = [header.as_slice(), custom, types, custom].concat();
        assert_eq!(without_custom_sections(&module)?, [header.as_slice(), types].concat());
        assert!(without_custom_sections(&module[..module.len() - 1]).is_err());
        assert!(without_custom_sections(b"\0asm").is_err());
        Ok(())
    }
}
