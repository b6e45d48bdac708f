//! Reads a store whose guest stands still or waits: its wasm frames, on however many native stacks, and its language's frames. Also
//! the records made of them and the ring that these go into. Nothing here knows what stopped the guest.

mod activations;
#[cfg(test)]
mod backtrace_tests;
mod core_instances;
#[cfg(test)]
mod go_tests;
mod language;
#[cfg(test)]
mod python_tests;
mod record;
mod ring;
mod self_check;
#[cfg(test)]
mod self_report_tests;
#[cfg(all(test, target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64")))]
mod step_tests;
#[cfg(all(test, target_os = "linux", any(target_arch = "aarch64", target_arch = "x86_64")))]
mod task_tests;
mod vm_context;
mod walk;

pub(super) use activations::{Activations, Entry};
pub(super) use language::{LanguageWalk, Reading};
pub(super) use record::{Header, Kind, MAX_WORDS, Record};
pub(super) use ring::Ring;
pub(super) use self_check::{Moment, Probe};
pub(super) use vm_context::{InstanceContext, MemoryDefinition, StoreContext};
pub(super) use walk::{Reads, Stack};
