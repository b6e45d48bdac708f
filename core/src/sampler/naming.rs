//! Names of a language's own frames and labels while the guest runs, so that a recording that is cut short has them: the
//! drain says what it lacks, the handler asks the walker where the guest stands in compiled code, and the drain takes the
//! answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use wlprof_plugin::{FrameKey, Label, SourceFrame, Walker};
use wlprof_recording::{ModuleId, Recorder, Unnamed};

/// What one sample names at most, for it makes the guest wait.
const MAX_NAMED_A_SAMPLE: usize = 2;

/// Questions and answers. The walker's thread never waits for the drain's.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// Whether there is a walker that answers.
    is_answered: AtomicBool,
    /// Whether there are questions.
    is_asked: AtomicBool,
    exchange: Mutex<Exchange>,
}

#[derive(Debug, Default)]
struct Exchange {
    unnamed: VecDeque<Unnamed>,
    named: Vec<Named>,
}

#[derive(Debug)]
enum Named {
    Frame(ModuleId, u64, Vec<SourceFrame>),
    Labels(ModuleId, u64, Vec<Label>),
}

impl Naming {
    /// Has `walker` name a few of what it is asked for. It allocates.
    pub(super) fn answer(&self, walker: &mut dyn Walker) {
        if !self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let mut exchange = match self.exchange.try_lock() {
            Ok(exchange) => exchange,
            Err(TryLockError::Poisoned(exchange)) => exchange.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for _ in 0..MAX_NAMED_A_SAMPLE {
            let Some(unnamed) = exchange.unnamed.pop_front() else { break };
            exchange.named.push(match unnamed {
                Unnamed::Frame(module, key) => {
                    let mut frames = Vec::new();
                    walker.symbolize(FrameKey::Own(key), &mut frames);
                    Named::Frame(module, key, frames)
                }
                Unnamed::Labels(module, key) => {
                    let mut labels = Vec::new();
                    walker.labels(key, &mut labels);
                    Named::Labels(module, key, labels)
                }
            });
        }
        self.is_asked.store(!exchange.unnamed.is_empty(), Ordering::Relaxed);
    }

    /// There is a walker that answers, from now on.
    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Asks for a name. What nobody answers is named when the guest has ended.
    pub(super) fn ask(&self, unnamed: Unnamed) {
        if self.is_answered.load(Ordering::Relaxed) {
            self.exchange().unnamed.push_back(unnamed);
            self.is_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Gives `recorder` the answers that have come.
    pub(super) fn give_answers(&self, recorder: &mut Recorder) {
        if !self.is_answered.load(Ordering::Relaxed) {
            return;
        }
        let named = std::mem::take(&mut self.exchange().named);
        for named in named {
            match named {
                Named::Frame(module, key, source) => recorder.name_frame(module, key, source),
                Named::Labels(module, key, labels) => recorder.name_labels(module, key, labels),
            }
        }
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
