//! Every stack of the guest at one moment: `debug=2` as Go prints them, `debug=1` with equal ones together, and how many there are of
//! each as a profile for pprof.

use super::state::State;
use super::windows::{Refusal, blocking};
use crate::thread_stacks;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use wlprof::sampler::{Dump, DumpedThread};
use wlprof_export::{NamedCall, stack_counts};
use wlprof_show::escape;
use wlprof_symbols::Symbols;

/// Where they are, as Go calls its threads and as others do, and what a profile of counts calls them.
pub(super) const PATHS: [(&str, &str); 2] =
    [("/debug/pprof/goroutine", "goroutine"), ("/debug/pprof/threads", "threads")];

/// In which form stacks are asked for.
enum Form {
    Text,
    GroupedText,
    /// What servers that scrape profiles read.
    Pprof,
}

/// Answers with the stacks, of a guest whose threads are called `counted` in a profile.
pub(super) async fn answer(state: Arc<State>, query: &str, counted: &'static str) -> Result<Response, Refusal> {
    let debug = query.split('&').find_map(|field| field.strip_prefix("debug="));
    let form = match debug {
        Some("1") => Form::GroupedText,
        Some("2") => Form::Text,
        None | Some("0") => Form::Pprof,
        Some(other) => {
            let text = format!(
                "debug={other}: expected 2 for every stack, 1 for equal ones together, or 0 for a profile that go tool pprof reads\n"
            );
            return Err((StatusCode::BAD_REQUEST, text));
        }
    };
    let shared = state.clone();
    let read = move || {
        // A server's guests begin with its first request.
        let has_begun = shared.guest.has_begun();
        let stacks = if has_begun { shared.guest.dump().map_err(io::Error::other)? } else { Dump::default() };
        let images = shared.guest.images();
        let mut symbols = shared.symbols.lock().unwrap_or_else(PoisonError::into_inner);
        let known = symbols.take().filter(|(count, _)| *count == images.len());
        let (_, symbols) = symbols.insert(known.unwrap_or_else(|| (images.len(), Symbols::new(&images, Vec::new()))));
        Ok(match form {
            Form::Text => thread_stacks::text(&stacks, symbols, |_| true).into_response(),
            Form::GroupedText => grouped(&stacks, symbols).into_response(),
            Form::Pprof => {
                let calls = stacks.threads.iter().map(|thread| calls(thread, &stacks, symbols));
                counts(&[(counted, "count")], calls)?
            }
        })
    };
    blocking(&state.readers, read).await
}

fn calls(thread: &DumpedThread, stacks: &Dump, symbols: &mut Symbols) -> Vec<NamedCall> {
    let mut calls = Vec::new();
    for &frame in &thread.frames {
        calls.extend(thread_stacks::named(frame, stacks, symbols).iter().map(|source| NamedCall {
            function: source.function.clone(),
            file: source.file.clone().unwrap_or_default(),
            line: source.line.unwrap_or(0),
        }));
    }
    calls
}

/// A profile of counts of now, as a file.
pub(super) fn counts(types: &[(&str, &str)], stacks: impl IntoIterator<Item = Vec<NamedCall>>) -> io::Result<Response> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let file = stack_counts(types, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), stacks)?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))], file).into_response())
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
