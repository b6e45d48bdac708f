//! Every stack of the guest at one moment: `debug=2` as Go prints them, `debug=1` with equal ones together.

use super::State;
use super::windows::{Refusal, blocking};
use crate::cli::{escape, thread_stacks};
use crate::sampler::Dump;
use crate::symbols::Symbols;
use axum::extract::{RawQuery, State as Given};
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, PoisonError};

/// Where they are: as Go calls its threads, and as others do.
pub(super) const PATHS: [&str; 2] = ["/debug/pprof/goroutine", "/debug/pprof/threads"];

pub(super) async fn answer(Given(state): Given<Arc<State>>, RawQuery(query): RawQuery) -> Result<String, Refusal> {
    let query = query.unwrap_or_default();
    let debug = query.split('&').find_map(|field| field.strip_prefix("debug="));
    let groups = match debug {
        Some("1") => true,
        Some("2") => false,
        _ => {
            let text = "give debug=2 for every stack, or debug=1 for equal ones together; there is no such profile for pprof\n";
            return Err((StatusCode::BAD_REQUEST, text.to_owned()));
        }
    };
    let shared = state.clone();
    let read = move || {
        let stacks = shared.profiler.dump().map_err(io::Error::other)?;
        let mut symbols = shared.symbols.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = symbols.get_or_insert_with(|| Symbols::new(&shared.images, Vec::new()));
        Ok(if groups { grouped(&stacks, symbols) } else { thread_stacks::text(&stacks, symbols, |_| true) })
    };
    blocking(&state.readers, read).await
}

/// Stacks that are equal together, those that there are most of first.
fn grouped(stacks: &Dump, symbols: &mut Symbols) -> String {
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for thread in &stacks.threads {
        let mut lines = String::new();
        for &frame in &thread.frames {
            for source in thread_stacks::named(frame, stacks, symbols).iter() {
                let _ = write!(lines, "#\t{}", escape::single_line(&source.function));
                if let Some(file) = &source.file {
                    let _ = write!(lines, "\t{}:{}", escape::single_line(file), source.line.unwrap_or(0));
                }
                lines.push('\n');
            }
        }
        *groups.entry(lines).or_default() += 1;
    }
    let mut text = format!("{} in all\n", stacks.threads.len());
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(one, count), (other, others)| others.cmp(count).then(one.cmp(other)));
    for (lines, count) in groups {
        let _ = write!(text, "\n{count} @\n{lines}");
    }
    text
}
