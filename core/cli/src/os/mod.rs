//! What the command asks of the operating system. One place chooses: this one. `unix` and `windows` have what differs between
//! those two, `linux` what it alone has, and `not_linux` what there is instead.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod not_linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as linux_or_not;
#[cfg(not(target_os = "linux"))]
use not_linux as linux_or_not;
#[cfg(unix)]
use unix as unix_or_windows;
#[cfg(windows)]
use windows as unix_or_windows;

/// Who may read a new file, where the system has permissions for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// Its owner only.
    Owner,
    /// Those whom the user's umask leaves.
    AsUsual,
}

pub(super) use linux_or_not::{create_for_perf, die_with_parent, drawing_would_stop, in_memory, own_program};
pub(super) use unix_or_windows::{
    columns, folder, folder_of_the_session, how_it_ended, keep_interrupts_from, limits, open_browser, signals,
};
