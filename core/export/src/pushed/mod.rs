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
