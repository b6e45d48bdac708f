//! What the plugin reads of the module itself: the data section and the code section.

const CODE_SECTION: u8 = 10;
const DATA_SECTION: u8 = 11;
const HEADER: usize = 8;

/// The payload of the module's data section: where the strings are that a program was compiled with. Empty if there is
/// none.
pub(crate) fn data_section(module: &[u8]) -> &[u8] {
    section(module, DATA_SECTION)
}

/// The payload of the module's code section, from which offsets of code count. Empty if there is none.
pub(crate) fn code_section(module: &[u8]) -> &[u8] {
    section(module, CODE_SECTION)
}

fn section(module: &[u8], wanted: u8) -> &[u8] {
    let mut rest = module.get(HEADER..).unwrap_or_default();
    while let Some((&id, after)) = rest.split_first() {
        let Some((size, after)) = size(after) else { break };
        let Some((payload, after)) = after.split_at_checked(size) else { break };
        if id == wanted {
            return payload;
        }
        rest = after;
    }
    &[]
}

/// A LEB128 number of at most 32 bits, and what follows.
fn size(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, bytes.get(index + 1..)?));
        }
    }
    None
}

/// Where `needle` first is in `bytes`.
pub(crate) fn position(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_section_is_found_behind_others() {
        let module = b"\0asm\x01\0\0\0\x01\x81\x00x\x0b\x02ab\x00\x01c";
        assert_eq!(data_section(module), b"ab");
        for length in 0..module.len() {
            data_section(&module[..length]);
        }
        assert_eq!(data_section(b"\0asm\x01\0\0\0\x0b\xff\xff\xff\xff\xff\xff"), b"");
    }
}
