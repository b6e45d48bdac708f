//! What pushed profiles have in common, whatever their format: few labels, bounded texts and stacks, and tables of what samples refer to.
//!
//! Servers make a series of each set of texts, refuse profiles with long symbols, and cut deep stacks at their leaf. [`KeptLabels`] and
//! [`limits`] keep to that. [`rows`] adds up samples, and [`symbols`] has tables that both formats number from 1.

mod kept_labels;
mod limits;
mod rows;
mod symbols;
mod table;
#[cfg(test)]
mod tests;

pub use kept_labels::{KeptLabels, MAX_SERIES};
pub(crate) use kept_labels::{LabelValue, SampleLabels};
pub(crate) use rows::{Row, Rows};
pub(crate) use symbols::{Line, Symbols};
pub(crate) use table::Table;

use wlprof_recording::Recording;

/// Returns how many rows a pushed profile of the recording has, at most. It costs a small part of what encoding does. Pyroscope takes 16,000
/// rows: split the recording in halves if there are more.
///
/// ```
/// use wlprof_export::{KeptLabels, pushed_pprof, pushed_rows};
///
/// let (recording, kept) = (wlprof_recording::example(), KeptLabels::default());
/// assert_eq!(pushed_rows(&recording, &kept), pushed_pprof(&recording, &kept).rows);
/// ```
pub fn pushed_rows(recording: &Recording, kept: &KeptLabels) -> usize {
    Rows::of(recording, kept).len()
}
