//! A walker of the plugin that is being checked, asked about moments.

use super::moment::Moment;
use super::not_failed;
use std::collections::BTreeSet;
use std::sync::Arc;
use wlprof_loader::LoadedPlugin;
use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, Program, SinkEntry, SourceFrame, Truncation, Walker, WasmFrame};

/// A stack as a walker gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WalkedStack {
    pub(super) outcome: Result<(), Truncation>,
    pub(super) entries: Vec<SinkEntry>,
    pub(super) labels: Vec<u64>,
}

/// How two stacks of one moment differ.
pub(super) fn difference(one: &WalkedStack, other: &WalkedStack) -> String {
    let advice = "what a walk gives must depend on the guest's memory alone, keys included";
    let at = one.entries.iter().zip(&other.entries).position(|(one, other)| one != other);
    let frame = |walked: &WalkedStack, at: usize| match walked.entries.get(at) {
        Some(SinkEntry::Own(key)) => format!("the key {key:#x}"),
        Some(SinkEntry::Wasm(index)) => format!("wasm frame {index}"),
        Some(SinkEntry::Elided) => "frames left out".to_owned(),
        None => "no frame".to_owned(),
    };
    let what =
        match at.or((one.entries.len() != other.entries.len()).then(|| one.entries.len().min(other.entries.len()))) {
            Some(at) => format!("frame {at} is {} and {}", frame(one, at), frame(other, at)),
            None if one.labels != other.labels => "the labels differ".to_owned(),
            None => format!("one walk ends {}, the other {}", ending(one), ending(other)),
        };
    format!("{what}; {advice}")
}

fn ending(walked: &WalkedStack) -> String {
    walked.outcome.map_or_else(|reason| format!("because {reason}"), |()| "at the root".to_owned())
}

/// A module that the language which is being checked has attached.
pub(super) struct AttachedModule {
    /// Dropped first.
    pub(super) program: Arc<dyn Program>,
    pub(super) plugin: LoadedPlugin,
    pub(super) language: usize,
}

impl AttachedModule {
    /// Ends the program.
    pub(super) fn end(self) -> Result<(), String> {
        let Self { program, plugin, language } = self;
        drop(program);
        plugin.end_walkers();
        not_failed(&plugin.languages[language])
    }

    pub(super) fn not_failed(&self) -> Result<(), String> {
        not_failed(&self.plugin.languages[self.language])
    }

    /// With a walker.
    pub(super) fn walking(self) -> Result<TrialWalker, String> {
        let walker = self.program.walker();
        self.not_failed()?;
        let walker = walker.ok_or("its program has walkers at times only")?;
        Ok(TrialWalker { walker, attached: self, sink: FrameSink::new() })
    }
}

/// A walker of the language that is being checked.
pub(super) struct TrialWalker {
    /// Dropped first.
    pub(super) walker: Box<dyn Walker>,
    pub(super) attached: AttachedModule,
    pub(super) sink: FrameSink,
}

impl TrialWalker {
    /// Ends the walker.
    pub(super) fn end(self) -> Result<(), String> {
        drop(self.walker);
        self.attached.end()
    }

    pub(super) fn not_failed(&self) -> Result<(), String> {
        self.attached.not_failed()
    }

    /// How a walk ended; a sentence if that was the plugin's failure.
    pub(super) fn walk_only(
        &mut self,
        guest: &dyn GuestMemory,
        wasm: &[WasmFrame],
    ) -> Result<Result<(), Truncation>, String> {
        let (walker, sink) = (&mut self.walker, &mut self.sink);
        sink.clear();
        let outcome = walker.walk(guest, wasm, sink);
        self.not_failed()?;
        if outcome == Err(Truncation::Failed) {
            return Err("walk failed (in Rust: by a panic)".to_owned());
        }
        Ok(outcome)
    }

    pub(super) fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame]) -> Result<WalkedStack, String> {
        let outcome = self.walk_only(guest, wasm)?;
        Ok(WalkedStack { outcome, entries: self.sink.entries().collect(), labels: self.sink.labels().to_vec() })
    }

    /// All frames of its own in these moments.
    pub(super) fn keys(&mut self, moments: &[Moment]) -> Result<BTreeSet<u64>, String> {
        let mut keys = BTreeSet::new();
        for moment in moments {
            let walked = self.walk(moment, &moment.wasm)?;
            keys.extend(walked.entries.iter().filter_map(|entry| match entry {
                SinkEntry::Own(key) => Some(*key),
                SinkEntry::Wasm(_) | SinkEntry::Elided => None,
            }));
        }
        Ok(keys)
    }

    /// Asks what is not asked at every sample, whatever comes of it.
    pub(super) fn ask_the_rest(&mut self, moment: &Moment) -> Result<(), String> {
        let walked = self.walk(moment, &moment.wasm)?;
        walked.labels.iter().for_each(|&key| self.attached.program.labels(key, &mut Vec::new()));
        self.walker.threads(moment, &moment.wasm, &mut Vec::new());
        self.attached.program.categorize(&SourceFrame { function: "main".to_owned(), ..SourceFrame::default() });
        self.attached.program.warnings();
        self.not_failed()
    }

    /// Names what was walked, whatever comes of it.
    pub(super) fn name_all(&mut self, walked: &WalkedStack) -> Result<(), String> {
        const MOST: usize = 64;
        for entry in walked.entries.iter().take(MOST) {
            if let SinkEntry::Own(key) = entry {
                self.attached.program.symbolize(FrameKey::Own(*key), &mut Vec::new());
            }
        }
        walked.labels.iter().for_each(|&key| self.attached.program.labels(key, &mut Vec::new()));
        self.not_failed()
    }
}
