//! Profiles of counts, as Go's servers have them: how many threads stand at each stack.

use super::texts::Texts;
use super::{compressed, proto, signed, symbolized};
use std::collections::{BTreeMap, HashMap};
use std::io;

/// A call on a stack, as its language names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedCall {
    /// The function's name. Untrusted text.
    pub function: String,
    /// Its source file, empty if that is not known. Untrusted text.
    pub file: String,
    /// Line that it stands at, or 0.
    pub line: u32,
}

/// Writes a profile of counts, of the time `time_ns` after 1970. `types` are the names and units of what is counted. Each stack, leaf
/// first, counts once, and equal ones are one sample.
///
/// # Errors
/// Those of the compressor, which has none.
pub fn stack_counts(
    types: &[(&str, &str)],
    time_ns: u64,
    stacks: impl IntoIterator<Item = Vec<NamedCall>>,
) -> io::Result<Vec<u8>> {
    let mut counts = BTreeMap::<Vec<NamedCall>, i64>::new();
    for stack in stacks {
        *counts.entry(stack).or_default() += 1;
    }
    let mut texts = Texts::new();
    let sample_type: Vec<_> = types.iter().map(|(of, unit)| texts.value_type(of, unit)).collect();
    let mut functions = HashMap::new();
    let mut locations = HashMap::new();
    let mut profile = proto::Profile {
        period_type: sample_type.first().copied(),
        period: 1,
        time_nanos: signed(time_ns),
        mapping: vec![symbolized(1, 0, texts.place("[guest]"), 0)],
        ..Default::default()
    };
    for (stack, count) in counts {
        let mut location_id = Vec::with_capacity(stack.len());
        for call in stack {
            let name = (call.function.clone(), call.file.clone());
            let function_id = *functions.entry(name).or_insert_with(|| {
                let id = profile.function.len() as u64 + 1;
                let (name, filename) = (texts.printable(&call.function), texts.printable(&call.file));
                profile.function.push(proto::Function { id, name, filename, ..Default::default() });
                id
            });
            location_id.push(*locations.entry((function_id, call.line)).or_insert_with(|| {
                let id = profile.location.len() as u64 + 1;
                let line = vec![proto::Line { function_id, line: call.line.into(), column: 0 }];
                profile.location.push(proto::Location { id, mapping_id: 1, address: 0, line });
                id
            }));
        }
        let value = vec![count; sample_type.len()];
        profile.sample.push(proto::Sample { location_id, value, label: Vec::new() });
    }
    profile.sample_type = sample_type;
    profile.string_table = texts.all;
    compressed(&profile, Vec::new())
}
