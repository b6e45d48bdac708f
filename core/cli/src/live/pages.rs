//! Which pages there are, and what each answers.

use super::state::State;
use super::windows::{Refusal, WindowRequest, make};
use super::{metrics, stacks};
use crate::http::for_firefox_profiler;
use crate::window_profiles::WindowOutput;
use axum::Router;
use axum::extract::{RawQuery, State as Given};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use std::fmt::Write as _;
use std::sync::Arc;
use wlprof_export::{self as export, EXPORTERS, Exporter};
use wlprof_recording::{Clock, HeapPart};
use wlprof_show::html::escaped;

/// As pprof's own endpoint has it.
const PPROF: WindowRequest = WindowRequest { seconds: 30.0, clock: Clock::Cpu, part: None };
const PPROF_WALL: WindowRequest = WindowRequest { clock: Clock::Wall, ..PPROF };
/// What somebody waits for in a browser.
const BROWSER: WindowRequest = WindowRequest { seconds: 5.0, ..PPROF };
/// What is hot now.
const NOW: WindowRequest = WindowRequest { seconds: 2.0, ..PPROF };
/// What is held now, and all that was allocated, since the guest began: nobody has to wait for it.
const HEAP: WindowRequest = WindowRequest { seconds: 0.0, part: Some(HeapPart::Held), ..PPROF };
const ALLOCATIONS: WindowRequest = WindowRequest { part: Some(HeapPart::Allocated), ..HEAP };
const PEAK: WindowRequest = WindowRequest { part: Some(HeapPart::Peak), ..HEAP };

/// The format of profiles that servers ask for again and again, and keep.
const SCRAPED: &str = "pprof-scraped";

/// Profiles that servers ask for by default, of what wlprof does not measure: without them they would report an error for ever.
const EMPTY: [(&str, &[(&str, &str)]); 3] = [
    ("/debug/pprof/block", &[("contentions", "count"), ("delay", "nanoseconds")]),
    ("/debug/pprof/mutex", &[("contentions", "count"), ("delay", "nanoseconds")]),
    ("/debug/pprof/threadcreate", &[("threadcreate", "count")]),
];
/// What a profile of time has, where no guest has begun.
const NO_TIME: &[(&str, &str)] = &[("samples", "count"), ("cpu", "nanoseconds")];
const NO_WALL_TIME: &[(&str, &str)] = &[("samples", "count"), ("wall", "nanoseconds")];
/// What a profile of allocations has, where memory is not profiled.
const NO_ALLOCATIONS: &[(&str, &str)] =
    &[("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];

/// A flame graph is a program: it searches and zooms.
const SVG_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'";

/// Formats that are one file; a recording of a window is one as well.
fn formats() -> impl Iterator<Item = &'static dyn Exporter> {
    EXPORTERS.iter().copied().filter(|exporter| exporter.companion_ending().is_none())
}

/// All pages.
pub(super) fn router(state: Arc<State>) -> Router {
    let mut router = Router::new()
        .route("/", get(hot))
        .route("/metrics", get(metrics::answer))
        .route("/debug/pprof", get(async || Redirect::permanent("/debug/pprof/")))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/cmdline", get(command_line))
        .route("/debug/pprof/profile", window_of(SCRAPED, PPROF))
        .route("/debug/pprof/wall", window_of(SCRAPED, PPROF_WALL))
        .route("/debug/pprof/heap", window_of(SCRAPED, HEAP))
        .route("/debug/pprof/allocs", get(allocations))
        .route("/memory", get(memory));
    for (path, counted) in stacks::PATHS {
        let stacks = async move |Given(state): Given<Arc<State>>, RawQuery(query): RawQuery| {
            stacks::answer(state, &query.unwrap_or_default(), counted).await
        };
        router = router.route(path, get(stacks));
    }
    for (path, types) in EMPTY {
        router = router.route(path, get(async || empty(types)));
    }
    for exporter in formats() {
        let page = window_of(exporter.name(), BROWSER);
        let page = if is_json(exporter) { for_firefox_profiler(page) } else { page };
        router = router.route(&format!("/{}", exporter.name()), page);
    }
    router.with_state(state)
}

/// What pages there are, for who asks for another, and for the index.
pub(super) fn contents() -> String {
    let mut text = String::from(
        "/                               what is hot now\n\
         /debug/pprof/profile?seconds=30 a profile of CPU time for go tool pprof\n\
         /debug/pprof/wall?seconds=30    the same of wall time, with waits\n\
         /debug/pprof/heap               what the guest holds and has allocated so far, for go tool pprof (with --memory)\n\
         /debug/pprof/allocs             the same, of which go tool pprof shows first what was allocated\n\
         /memory                         who has allocated so far, and who holds it\n\
         /debug/pprof/goroutine?debug=2  every stack of the guest now (debug=1: equal ones together; without: a profile of counts); /debug/pprof/threads is the same\n\
         /debug/pprof/block              empty, as /debug/pprof/mutex and /debug/pprof/threadcreate: for servers that ask for them\n\
         /debug/pprof/cmdline            the guest and its arguments\n\
         /metrics                        counts for Prometheus and its like (OpenMetrics)\n",
    );
    for exporter in formats() {
        let path = format!("/{}?seconds=5", exporter.name());
        let _ = writeln!(text, "{path:<31} {}", exporter.description());
    }
    text.push_str("\nseconds=N says how long to sample; clock=wall counts waits, too.\n");
    text
}

/// A window, as a file of the format called `name`.
fn window_of(name: &'static str, unless_told: WindowRequest) -> MethodRouter<Arc<State>> {
    get(async move |Given(state): Given<Arc<State>>, RawQuery(query): RawQuery| {
        file(state, &query.unwrap_or_default(), name, unless_told).await
    })
}

async fn file(state: Arc<State>, query: &str, name: &str, unless_told: WindowRequest) -> Result<Response, Refusal> {
    let gone = || (StatusCode::NOT_FOUND, format!("there is no format {name}\n"));
    let exporter = export::by_name(name).ok_or_else(gone)?;
    let wanted = WindowRequest::of_query(query, unless_told)?;
    // It may begin while it refuses a window because it has not.
    let had_begun = state.guest.has_begun();
    let types = match (wanted.part, wanted.clock) {
        (Some(_), _) => NO_ALLOCATIONS,
        (None, Clock::Cpu) => NO_TIME,
        (None, Clock::Wall) => NO_WALL_TIME,
    };
    match make(state, wanted, WindowOutput::File(exporter)).await {
        // Servers ask for it from the first moment on. To a person the reason says more.
        Err((StatusCode::CONFLICT, _)) if name == SCRAPED && !had_begun => empty(types),
        made => Ok(with_type(exporter, made?)),
    }
}

/// What was allocated. Servers ask for it by default, so that there is an answer without `--memory`, too: an empty one.
async fn allocations(Given(state): Given<Arc<State>>, RawQuery(query): RawQuery) -> Result<Response, Refusal> {
    if state.profiles_memory {
        file(state, &query.unwrap_or_default(), SCRAPED, ALLOCATIONS).await
    } else {
        empty(NO_ALLOCATIONS)
    }
}

/// A profile of nothing.
fn empty(types: &[(&str, &str)]) -> Result<Response, Refusal> {
    stacks::counts(types, []).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
}

fn is_json(exporter: &dyn Exporter) -> bool {
    exporter.extensions()[0].ends_with("json")
}

fn with_type(exporter: &dyn Exporter, file: Vec<u8>) -> Response {
    let ending = exporter.extensions()[0];
    let media_type = match ending {
        "svg" => "image/svg+xml",
        "folded" | "dot" => "text/plain; charset=utf-8",
        _ if is_json(exporter) => "application/json",
        _ => "application/octet-stream",
    };
    let mut answer = ([(CONTENT_TYPE, HeaderValue::from_static(media_type))], file).into_response();
    let headers = answer.headers_mut();
    if ending == "svg" {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SVG_POLICY));
    }
    if media_type == "application/octet-stream"
        && let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"profile.{ending}\""))
    {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    answer
}

/// What is hot now: samples, shows, and is loaded anew. Without a script: the page says that it is to be loaded again, and the one
/// before stands until the next is there.
async fn hot(Given(state): Given<Arc<State>>, RawQuery(query): RawQuery) -> Result<Html<String>, Refusal> {
    let wanted = WindowRequest::of_query(&query.unwrap_or_default(), NOW)?;
    let title = escaped(&state.command.join(" "));
    let table = make(state, wanted, WindowOutput::Table).await?;
    Ok(Html(page(&title, "<meta http-equiv=\"refresh\" content=\"1\">", &String::from_utf8_lossy(&table))))
}

/// Who has allocated so far, and who holds it.
async fn memory(Given(state): Given<Arc<State>>) -> Result<Html<String>, Refusal> {
    let title = escaped(&state.command.join(" "));
    let table = make(state, PEAK, WindowOutput::Table).await?;
    Ok(Html(page(&title, "", &String::from_utf8_lossy(&table))))
}

async fn index(Given(state): Given<Arc<State>>) -> Html<String> {
    Html(page(&escaped(&state.command.join(" ")), "", ""))
}

/// `head` and `title` are HTML already.
fn page(title: &str, head: &str, text: &str) -> String {
    let text = if text.is_empty() { String::new() } else { format!("<pre>{}</pre>\n", escaped(text)) };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>{head}\
         <style>body{{font-family:sans-serif;margin:2em}}pre{{font-size:13px;line-height:1.35;overflow-x:auto}}\
         td{{padding-right:2em;vertical-align:top}}</style></head>\n<body><h1>{title}</h1>\n{text}<table>\n{}</table>\n\
         <p><code>seconds=N</code> says how long to sample; <code>clock=wall</code> counts waits, too.</p></body></html>\n",
        links()
    )
}

/// The contents as rows of a table.
fn links() -> String {
    let contents = contents();
    let rows = contents.lines().filter_map(|line| line.starts_with('/').then(|| line.split_once(' ')).flatten());
    let row = |(path, what): (&str, &str)| {
        let (path, what) = (escaped(path), escaped(what.trim()));
        format!("<tr><td><a href=\"{path}\"><code>{path}</code></a></td><td>{what}</td></tr>\n")
    };
    rows.map(row).collect()
}

/// As Go's own servers give it: parted by zeroes.
async fn command_line(Given(state): Given<Arc<State>>) -> String {
    state.command.join("\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_guest_is_html() {
        let page = page(&escaped("<script>\"'&"), "", "</pre><script>alert(1)</script>");
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("<h1>&lt;script&gt;&quot;&#39;&amp;</h1>"), "{page}");
    }

    #[test]
    fn the_contents_have_every_format_that_is_one_file() {
        let contents = contents();
        for exporter in formats() {
            assert!(contents.contains(&format!("\n/{}?seconds=5 ", exporter.name())), "{contents}");
        }
        assert!(!contents.contains("/perf?"));
    }
}
