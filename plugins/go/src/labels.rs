//! What a sample belongs to: a goroutine, and the labels the program gave it with `pprof.Do`.

use crate::layout::{self, G, Layout};
use std::sync::Arc;
use wlprof_plugin::{GuestMemory, KeyTable, Label, NotKept, OutOfBounds, Truncation};

const MOST_LABELS: u64 = 32;
const LONGEST: usize = 256;
/// Label sets kept; programs that make up more (a label for each request) lose those of later samples.
const MOST_SETS: u32 = 1 << 16;
/// Bytes of text in them, all told: 65,536 times 32 labels of 256 bytes would be a gigabyte.
const MOST_TEXT: usize = 16 << 20;
/// Buckets of a map looked at, so that overflow buckets that lead back to themselves end: 32 labels have six of them,
/// and as many overflow buckets at the most.
const MOST_BUCKETS: usize = 128;

/// Why a set of labels has no key now. It may have one in a later walk.
pub(crate) enum NoKey {
    /// It was seen for the first time, and there must be no allocating to keep it.
    WouldAllocate,
    /// Another walker is at the sets.
    Busy,
}

impl From<NoKey> for Truncation {
    fn from(reason: NoKey) -> Self {
        match reason {
            NoKey::WouldAllocate => Self::WouldAllocate,
            NoKey::Busy => Self::Busy,
        }
    }
}

/// A key with this bit is the number of a set of labels. Without, it is the number of a goroutine that has none, or 0 for
/// the scheduler: most samples, which need not be kept then.
const IS_SET: u64 = 1 << 63;

/// The sets of labels that were seen, for all walkers of a module: a goroutine's number, then names and values, each with its length
/// before it, as they lie in the guest.
#[derive(Debug)]
pub(crate) struct KeptSets(KeyTable<Box<[u8]>>);

/// Hands out a key for each distinct set of labels.
#[derive(Debug)]
pub(crate) struct LabelSets {
    kept: Arc<KeptSets>,
    /// The set being looked up, written out. Kept, so that a sample allocates nothing.
    written: Vec<u8>,
}

impl Default for KeptSets {
    fn default() -> Self {
        Self(KeyTable::new(MOST_SETS, MOST_TEXT))
    }
}

impl LabelSets {
    /// Keeps what it sees in `kept`.
    pub(crate) fn new(kept: Arc<KeptSets>) -> Self {
        let most = 8 + 2 * MOST_LABELS as usize * (4 + LONGEST);
        Self { kept, written: Vec::with_capacity(most) }
    }

    /// The key of the labels that the code running on `g` has; `None` if they cannot be read or there are too many.
    pub(crate) fn key(
        &mut self,
        guest: &dyn GuestMemory,
        layout: &Layout,
        g: G,
        may_allocate: bool,
    ) -> Result<Option<u64>, NoKey> {
        let (user, goroutine) = match goroutine(guest, layout, g) {
            Ok(Some((user, goroutine))) => (user, goroutine & !IS_SET),
            Ok(None) => return Ok(Some(0)),
            Err(OutOfBounds) => return Ok(None),
        };
        self.written.clear();
        self.written.extend(goroutine.to_le_bytes());
        let unlabelled = self.written.len();
        visit(guest, layout, user, &mut |text| {
            self.written.extend((text.len() as u32).to_le_bytes());
            self.written.extend(text);
        });
        if self.written.len() == unlabelled {
            return Ok(Some(goroutine));
        }
        let written = self.written.as_slice();
        let KeptSets(sets) = &*self.kept;
        let number = match sets.find(written) {
            Ok(Some(number)) => Ok(number),
            Ok(None) if !may_allocate => return if sets.is_full() { Ok(None) } else { Err(NoKey::WouldAllocate) },
            Ok(None) => sets.keep(written.into(), written.len()),
            Err(reason) => Err(reason),
        };
        match number {
            Ok(number) => Ok(Some(IS_SET | u64::from(number))),
            Err(NotKept::Full) => Ok(None),
            Err(NotKept::Busy) => Err(NoKey::Busy),
        }
    }
}

impl KeptSets {
    /// Spells out a key.
    pub(crate) fn spell(&self, key: u64, out: &mut Vec<Label>) {
        let number = if key & IS_SET != 0 { u32::try_from(key & !IS_SET).ok() } else { None };
        let set = number.and_then(|number| self.0.get(number)).and_then(|set| set.split_first_chunk());
        let (goroutine, labels) = set.map_or((key, Labels::new()), |(goroutine, texts)| {
            let texts = written_texts(texts).map(|text| String::from_utf8_lossy(text).into_owned());
            (u64::from_le_bytes(*goroutine), sorted(texts.collect()))
        });
        let value = if goroutine == 0 { "scheduler".to_owned() } else { goroutine.to_string() };
        out.push(Label { name: "goroutine".to_owned(), value });
        out.extend(labels.into_iter().map(|(name, value)| Label { name, value }));
    }
}

/// The texts of a set as [`LabelSets::key`] writes it.
fn written_texts(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk()?;
        let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(text)
    })
}

/// The goroutine that runs on `g`, and its number; `None` while the scheduler looks for one.
fn goroutine(guest: &dyn GuestMemory, layout: &Layout, g: G) -> Result<Option<(G, u64)>, OutOfBounds> {
    let user = if layout::is_g0(guest, g)? { layout.curg(guest, g)? } else { Some(g) };
    user.map(|user| Ok((user, layout.goid(guest, user)?))).transpose()
}

type Labels = Vec<(String, String)>;

/// The labels that the program gave goroutine `g`; those that cannot be read are left out.
pub(crate) fn program_labels(guest: &dyn GuestMemory, layout: &Layout, g: G) -> Labels {
    let mut texts = Vec::new();
    visit(guest, layout, g, &mut |text| texts.push(String::from_utf8_lossy(text).into_owned()));
    sorted(texts)
}

/// Names and values in turn as labels.
fn sorted(texts: Vec<String>) -> Labels {
    let (pairs, _) = texts.as_chunks::<2>();
    let mut labels: Labels = pairs.iter().map(|[name, value]| (name.clone(), value.clone())).collect();
    labels.sort_unstable();
    labels
}

/// Gives the names and values of goroutine `g`'s labels in turn, in the order in which they lie there.
fn visit(guest: &dyn GuestMemory, layout: &Layout, g: G, see: &mut dyn FnMut(&[u8])) {
    if let Ok(address) = layout.labels(guest, g)
        && address != 0
    {
        let read = if layout.labels_are_a_map { visit_map } else { visit_list };
        // What was read before something broke stands.
        let _ = read(guest, address, see);
    }
}

/// A list of pairs of strings, since Go 1.24.
fn visit_list(guest: &dyn GuestMemory, address: u64, see: &mut dyn FnMut(&[u8])) -> Result<(), OutOfBounds> {
    let (items, count) = (guest.read_u64(address)?, guest.read_u64(address.wrapping_add(8))?);
    for index in 0..count.min(MOST_LABELS) {
        let item = items.wrapping_add(32 * index);
        visit_string(guest, item, see)?;
        visit_string(guest, item.wrapping_add(16), see)?;
    }
    Ok(())
}

/// A `map[string]string`, until Go 1.23: buckets of eight, and while it grows the old buckets too.
fn visit_map(guest: &dyn GuestMemory, address: u64, see: &mut dyn FnMut(&[u8])) -> Result<(), OutOfBounds> {
    /// What marks a used slot is at least this; less says it is empty or has moved.
    const FIRST_USED: u8 = 5;
    let map = guest.read_u64(address)?;
    let size_log = guest.read_u8(map.wrapping_add(9))?;
    let (buckets, old) = (guest.read_u64(map.wrapping_add(16))?, guest.read_u64(map.wrapping_add(24))?);
    let mut seen = 0;
    let mut left = MOST_BUCKETS;
    for (buckets, size_log) in [(buckets, size_log), (old, size_log.saturating_sub(1))] {
        if buckets == 0 {
            continue;
        }
        for index in 0..1_u64 << size_log.min(5) {
            let mut bucket = buckets.wrapping_add(272 * index);
            // Buckets that overflow go on in others.
            loop {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                for slot in 0..8 {
                    if guest.read_u8(bucket.wrapping_add(slot))? >= FIRST_USED {
                        let key = bucket.wrapping_add(8 + 16 * slot);
                        visit_string(guest, key, see)?;
                        visit_string(guest, key.wrapping_add(128), see)?;
                        seen += 1;
                        if seen == MOST_LABELS {
                            return Ok(());
                        }
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

fn visit_string(guest: &dyn GuestMemory, header: u64, see: &mut dyn FnMut(&[u8])) -> Result<(), OutOfBounds> {
    let (address, length) = (guest.read_u64(header)?, guest.read_u64(header.wrapping_add(8))?);
    let mut buffer = [0; LONGEST];
    let bytes = &mut buffer[..length.min(LONGEST as u64) as usize];
    guest.read(address, bytes)?;
    see(bytes);
    Ok(())
}
