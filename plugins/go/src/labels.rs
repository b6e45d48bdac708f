//! What a sample belongs to: a goroutine, and the labels the program gave it with `pprof.Do`.

use crate::layout::{self, G, Layout};
use std::collections::HashMap;
use wlprof_plugin::{GuestMemory, Label, OutOfBounds};

const MOST_LABELS: u64 = 32;
const LONGEST: u64 = 256;
/// Label sets kept; programs that make up more (a label for each request) lose those of later samples.
const MOST_SETS: usize = 1 << 16;

/// Hands out a key for each distinct set of labels.
#[derive(Debug, Default)]
pub(crate) struct LabelSets {
    keys: HashMap<LabelSet, u64>,
    sets: Vec<LabelSet>,
}

/// The goroutine, `None` for the scheduler, and its labels sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct LabelSet {
    goroutine: Option<u64>,
    labels: Vec<(String, String)>,
}

impl LabelSets {
    /// The key of the labels that the code running on `g` has.
    pub(crate) fn key(&mut self, guest: &dyn GuestMemory, layout: &Layout, g: G) -> Option<u64> {
        let user = if layout::is_g0(guest, g).ok()? { layout.curg(guest, g).ok()? } else { Some(g) };
        let set = match user {
            Some(user) => LabelSet {
                goroutine: Some(layout.goid(guest, user).ok()?),
                labels: program_labels(guest, layout, user),
            },
            None => LabelSet::default(),
        };
        if let Some(&key) = self.keys.get(&set) {
            return Some(key);
        }
        if self.sets.len() >= MOST_SETS {
            return None;
        }
        let key = self.sets.len() as u64;
        self.sets.push(set.clone());
        self.keys.insert(set, key);
        Some(key)
    }

    /// Spells out a key.
    pub(crate) fn spell(&self, key: u64, out: &mut Vec<Label>) {
        let Some(set) = usize::try_from(key).ok().and_then(|key| self.sets.get(key)) else { return };
        let goroutine = set.goroutine.map_or_else(|| "scheduler".to_owned(), |id| id.to_string());
        out.push(Label { name: "goroutine".to_owned(), value: goroutine });
        out.extend(set.labels.iter().map(|(name, value)| Label { name: name.clone(), value: value.clone() }));
    }
}

/// The labels that the program gave goroutine `g`; those that cannot be read are left out.
pub(crate) fn program_labels(guest: &dyn GuestMemory, layout: &Layout, g: G) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    if let Ok(address) = layout.labels(guest, g)
        && address != 0
    {
        let read = if layout.labels_are_a_map { read_map } else { read_list };
        // What was read before something broke stands.
        let _ = read(guest, address, &mut labels);
    }
    labels.sort_unstable();
    labels
}

type Labels = Vec<(String, String)>;

/// A list of pairs of strings, since Go 1.24.
fn read_list(guest: &dyn GuestMemory, address: u64, labels: &mut Labels) -> Result<(), OutOfBounds> {
    let (items, count) = (guest.read_u64(address)?, guest.read_u64(address.wrapping_add(8))?);
    for index in 0..count.min(MOST_LABELS) {
        let item = items.wrapping_add(32 * index);
        labels.push((read_string(guest, item)?, read_string(guest, item.wrapping_add(16))?));
    }
    Ok(())
}

/// A `map[string]string`, until Go 1.23: buckets of eight, and while it grows the old buckets too.
fn read_map(guest: &dyn GuestMemory, address: u64, labels: &mut Labels) -> Result<(), OutOfBounds> {
    /// What marks a used slot is at least this; less says it is empty or has moved.
    const FIRST_USED: u8 = 5;
    let map = guest.read_u64(address)?;
    let size_log = guest.read_u8(map.wrapping_add(9))?;
    let (buckets, old) = (guest.read_u64(map.wrapping_add(16))?, guest.read_u64(map.wrapping_add(24))?);
    for (buckets, size_log) in [(buckets, size_log), (old, size_log.saturating_sub(1))] {
        if buckets == 0 {
            continue;
        }
        for index in 0..1_u64 << size_log.min(5) {
            let mut bucket = buckets.wrapping_add(272 * index);
            for _ in 0..MOST_LABELS {
                for slot in 0..8 {
                    if guest.read_u8(bucket.wrapping_add(slot))? >= FIRST_USED && (labels.len() as u64) < MOST_LABELS {
                        let key = bucket.wrapping_add(8 + 16 * slot);
                        labels.push((read_string(guest, key)?, read_string(guest, key.wrapping_add(128))?));
                    }
                }
                bucket = guest.read_u64(bucket.wrapping_add(264))?;
                if bucket == 0 {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn read_string(guest: &dyn GuestMemory, header: u64) -> Result<String, OutOfBounds> {
    let (address, length) = (guest.read_u64(header)?, guest.read_u64(header.wrapping_add(8))?);
    let mut bytes = vec![0; length.min(LONGEST) as usize];
    guest.read(address, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
