//! The pages of a recording, and what each may do in the browser.

use super::renderer::Renderer;
use crate::http::for_firefox_profiler;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use std::sync::Arc;
use wlprof_show::pages::{CALL_TREE_SCRIPT, Page, Part, Shell};

/// A flame graph is a program: it searches and zooms. It stands in a page of this server.
const SVG_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'self'";

/// The page around it.
const FRAME_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// The call tree's page runs the script that this server has.
const SCRIPT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// What all pages are made of.
#[derive(Clone)]
struct PageSources {
    shell: Shell,
    renderer: Arc<Renderer>,
}

/// The pages, to be put below the secret path.
pub(super) fn router(shell: Shell, renderer: Arc<Renderer>) -> Router {
    let source = |whole| {
        get(async move |State(made): State<PageSources>, Path(file): Path<usize>| {
            made.page(Page::Sources, Part::Source { file, whole }).await
        })
    };
    Router::new()
        .route(
            "/",
            get(async |State(made): State<PageSources>| with_policy(FRAME_POLICY, Html(made.shell.flame_graph()))),
        )
        .route("/flamegraph.svg", file(Part::FlameGraph, "image/svg+xml", Some(SVG_POLICY)))
        .route(
            "/call-tree",
            get(async |State(made): State<PageSources>| {
                with_policy(SCRIPT_POLICY, made.page(Page::CallTree, Part::CallTree).await)
            }),
        )
        .route("/call-tree.js", get(async || ([(CONTENT_TYPE, "text/javascript")], CALL_TREE_SCRIPT)))
        .route("/sources", page(Page::Sources, Part::Files))
        .route("/source/{file}", source(false))
        .route("/source/{file}/whole", source(true))
        .route("/table", page(Page::Table, Part::Table))
        .route("/profile.json", for_firefox_profiler(file(Part::Profile, "application/json", None)))
        .with_state(PageSources { shell, renderer })
}

fn page(page: Page, part: Part) -> MethodRouter<PageSources> {
    get(async move |State(made): State<PageSources>| made.page(page, part).await)
}

/// A part as it is.
fn file(part: Part, media_type: &'static str, policy: Option<&'static str>) -> MethodRouter<PageSources> {
    get(async move |State(made): State<PageSources>| match made.part(part).await {
        Ok(content) => {
            let answer = ([(CONTENT_TYPE, media_type)], content);
            match policy {
                Some(policy) => with_policy(policy, answer),
                None => answer.into_response(),
            }
        }
        Err(refusal) => refusal,
    })
}

fn with_policy(policy: &'static str, answer: impl IntoResponse) -> Response {
    let mut answer = answer.into_response();
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    answer
}

impl PageSources {
    async fn page(&self, page: Page, part: Part) -> Response {
        match self.part(part).await {
            Ok(content) => Html(self.shell.page(page, &String::from_utf8_lossy(&content))).into_response(),
            Err(refusal) => refusal,
        }
    }

    /// The part, or what is answered in its place.
    async fn part(&self, part: Part) -> Result<Bytes, Response> {
        let renderer = self.renderer.clone();
        let failed = |reason: String| {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("this cannot be rendered: {reason}\n")).into_response()
        };
        match tokio::task::spawn_blocking(move || renderer.part(part)).await {
            Ok(Ok(Some(content))) => Ok(content),
            Ok(Ok(None)) => Err((StatusCode::NOT_FOUND, "there is no such page here\n").into_response()),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
