//! What is shown of a recording, as text: tables, annotated sources, the difference of two, and pages for a browser.
//!
//! ```
//! use wlprof_show::table::{TableOptions, table};
//!
//! let text = table(&wlprof_recording::example(), None, &TableOptions::default());
//! assert!(text.contains("self: "), "{text}");
//! ```

#![forbid(unsafe_code)]

pub mod annotated;
pub mod difference;
pub mod escape;
pub mod firefox_profiler;
pub mod html;
pub mod pages;
pub mod table;
mod wrapping;

pub use wrapping::wrapped;
