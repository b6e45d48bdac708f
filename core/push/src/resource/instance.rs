//! Ids of instances of a service: UUIDs.

use sha2::{Digest, Sha256};

/// A new random id (UUID version 4), if the system gives random bytes.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(uuid(bytes, 4))
}

/// The id that these facts have in common wherever it is made (UUID version 8, of a hash).
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) fn derived(facts: &[&str]) -> String {
    let mut hash = Sha256::new();
    hash.update("wlprof service.instance.id");
    for fact in facts {
        hash.update((fact.len() as u64).to_le_bytes());
        hash.update(fact);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid(bytes, 8)
}

/// The text of a UUID of these bytes.
pub(crate) fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_uuids() {
        assert_eq!(uuid([0xff; 16], 4), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16], 8), "00000000-0000-8000-8000-000000000000");
        assert_ne!(random().unwrap(), random().unwrap());
    }

    #[test]
    fn derived_ids_depend_on_each_fact() {
        assert_eq!(derived(&["boot", "1", "2"]), derived(&["boot", "1", "2"]));
        assert_ne!(derived(&["boot", "1", "2"]), derived(&["boot", "12", ""]));
    }
}
