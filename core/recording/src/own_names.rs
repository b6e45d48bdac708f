//! Names that no module tells: of frames by their languages' own keys and of labels, most of them given while the guest
//! runs, so that a recording that is cut short has them.

use super::journal::{Block, Journal};
use super::long_names::{shorten, shorten_names};
use super::numbers::Numbers;
use super::{FrameId, ModuleId, NamedFrame, Origin};
use std::collections::{BTreeSet, HashMap, HashSet};
use wlprof_plugin::{Label, SourceFrame};

/// Source frames that are named before they are written: so many names are lost if naming the next one ends the process.
const NAMED_AT_ONCE: usize = 512;

/// The most source frames that one frame may be, and labels that one key may stand for.
const MAX_OF_ONE: usize = 1024;

/// Name and value.
type NameAndValue = (String, String);

/// What only the languages know whose stacks were walked.
pub trait LanguageNames {
    /// Appends the source frames of a frame of the language's own, innermost inlined first; none if it is unknown.
    fn own_frame(&mut self, module: ModuleId, key: u64, out: &mut Vec<SourceFrame>);

    /// The names and values of the labels that the plugin of `module` calls by `key`.
    fn labels(&mut self, module: ModuleId, key: u64) -> Vec<Label>;

    /// What the user should know of what was walked and named.
    fn notes(&mut self) -> Vec<String>;
}

/// What a module's language can be asked to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameSource {
    /// The frame of this key.
    Frame(ModuleId, u64),
    /// The labels of this key.
    Labels(ModuleId, u64),
}

impl NameSource {
    /// The module whose language it is of.
    pub fn module(self) -> ModuleId {
        match self {
            Self::Frame(module, _) | Self::Labels(module, _) => module,
        }
    }
}

/// The names so far.
#[derive(Debug, Default)]
pub(super) struct OwnNames {
    /// Met since that was last asked.
    unnamed: Vec<NameSource>,
    /// Not in the journal yet.
    frames: Vec<(FrameId, Vec<NamedFrame>)>,
    named: HashSet<FrameId>,
    labels: HashMap<(ModuleId, u64), Vec<NameAndValue>>,
    /// How many sets of labels are in the journal with their names.
    spelled: usize,
}

impl OwnNames {
    /// Notes what has been met for the first time.
    pub(super) fn met(&mut self, unnamed: NameSource) {
        self.unnamed.push(unnamed);
    }

    /// What has been met since this was last asked.
    pub(super) fn take_unnamed(&mut self) -> Vec<NameSource> {
        std::mem::take(&mut self.unnamed)
    }

    /// Takes the source frames of a frame.
    pub(super) fn name_frame(&mut self, frame: FrameId, source: Vec<SourceFrame>) {
        if self.named.insert(frame) {
            let bounded = source.into_iter().take(MAX_OF_ONE).map(|mut source| {
                shorten_names(&mut source);
                NamedFrame::from(source)
            });
            self.frames.push((frame, bounded.collect()));
        }
    }

    /// Takes the names and values of the labels of a key.
    pub(super) fn name_labels(&mut self, module: ModuleId, key: u64, labels: Vec<Label>) {
        let bounded = labels.into_iter().take(MAX_OF_ONE).map(|Label { mut name, mut value }| {
            shorten(&mut name);
            shorten(&mut value);
            (name, value)
        });
        self.labels.insert((module, key), bounded.collect());
    }

    /// How many sets of labels are in the journal with their names.
    pub(super) fn spelled(&self) -> usize {
        self.spelled
    }

    /// Forgets labels of modules that are no more: others will have their ids.
    pub(super) fn forget_modules(&mut self, modules: &BTreeSet<ModuleId>) {
        self.unnamed.retain(|unnamed| !modules.contains(&unnamed.module()));
        self.labels.retain(|(module, _), _| !modules.contains(module));
    }

    /// Keeps the names of the frames that have new numbers, and of the labels in `sets`, of which `spelled` are written with their
    /// names. There is nothing that is not written.
    pub(super) fn renumber(&mut self, frames: &Numbers, spelled: usize, sets: &[(ModuleId, &[u64])]) {
        self.named = self.named.iter().filter_map(|frame| frames.of(*frame)).collect();
        let kept: HashSet<(ModuleId, u64)> =
            sets.iter().flat_map(|(module, keys)| keys.iter().map(|key| (*module, *key))).collect();
        self.labels.retain(|label, _| kept.contains(label));
        self.spelled = spelled;
    }

    /// Writes the names of frames that are not written yet.
    pub(super) fn write_frames(&mut self, journal: &mut Journal) {
        if !self.frames.is_empty() {
            journal.write(&Block::LanguageNames(std::mem::take(&mut self.frames)));
        }
    }

    /// What of these frames and sets of labels has no name yet.
    pub(super) fn without_name(&self, frames: &[Origin], sets: &[(ModuleId, &[u64])]) -> Vec<NameSource> {
        let of_frame = |(id, origin): (FrameId, &Origin)| match *origin {
            Origin::Language { module, key } if !self.named.contains(&id) => Some(NameSource::Frame(module, key)),
            _ => None,
        };
        let of_set = |(module, keys): &(ModuleId, &[u64])| {
            let module = *module;
            keys.iter().map(move |&key| (module, key)).collect::<Vec<_>>()
        };
        let labels: HashSet<(ModuleId, u64)> = sets[self.spelled..].iter().flat_map(of_set).collect();
        let labels = labels.into_iter().filter(|label| !self.labels.contains_key(label));
        let labels = labels.map(|(module, key)| NameSource::Labels(module, key));
        (0..).zip(frames).filter_map(of_frame).chain(labels).collect()
    }

    /// What native code of these frames has no name yet.
    pub(super) fn native_without_name(&self, frames: &[Origin]) -> Vec<(u32, u64)> {
        let native = |(id, origin): (FrameId, &Origin)| match *origin {
            Origin::Native { object, address } if !self.named.contains(&id) => Some((object, address)),
            _ => None,
        };
        (0..).zip(frames).filter_map(native).collect()
    }

    /// Whether any of `count` sets of labels could be written with names now that was not before.
    pub(super) fn may_spell(&self, count: usize) -> bool {
        self.spelled < count && !self.labels.is_empty()
    }

    /// Writes as many of the next sets of labels as are known. `sets` are the keys of all.
    pub(super) fn write_labels(&mut self, sets: &[(ModuleId, &[u64])], journal: &mut Journal) {
        let spelled: Vec<Vec<NameAndValue>> = sets[self.spelled..].iter().map_while(|set| self.spell(*set)).collect();
        let count = spelled.len();
        // They are known by their order: none may be left out.
        if count > 0 && journal.write(&Block::LabelSets(spelled)) {
            self.spelled += count;
        }
    }

    fn spell(&self, (module, keys): (ModuleId, &[u64])) -> Option<Vec<NameAndValue>> {
        let known: Option<Vec<_>> = keys.iter().map(|&key| self.labels.get(&(module, key))).collect();
        Some(known?.into_iter().flatten().cloned().collect())
    }

    /// Has `names` name all that has no name yet, and writes it.
    pub(super) fn complete(
        &mut self,
        frames: &[Origin],
        sets: &[(ModuleId, &[u64])],
        names: &mut dyn LanguageNames,
        journal: &mut Journal,
    ) {
        let (mut source, mut count) = (Vec::new(), 0);
        for (id, origin) in (0..).zip(frames) {
            if let Origin::Language { module, key } = *origin
                && !self.named.contains(&id)
            {
                names.own_frame(module, key, &mut source);
                self.name_frame(id, std::mem::take(&mut source));
                count += self.frames.last().map_or(0, |(_, named)| named.len());
                if count >= NAMED_AT_ONCE {
                    count = 0;
                    self.write_frames(journal);
                }
            }
        }
        self.write_frames(journal);
        for &(module, keys) in &sets[self.spelled..] {
            for &key in keys {
                if !self.labels.contains_key(&(module, key)) {
                    self.name_labels(module, key, names.labels(module, key));
                }
            }
        }
        self.write_labels(sets, journal);
    }
}
