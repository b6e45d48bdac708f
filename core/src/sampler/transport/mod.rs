//! What stops a guest so that it can be read, a file or a folder for each way. Each implements `Transport` of
//! `running/threads.rs`; `at_work.rs` chooses.

pub(super) mod epoch;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) mod signal;
