//! What stands around every page of a server: whom it answers, what each answer says to the browser, and what is said where there
//! is no page.

use super::firefox_profiler::is_front_end;
use super::hosts::Hosts;
use axum::Router;
use axum::extract::Request;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};

/// What pages may do that do not say so themselves: show text with their own styles, and images of this server.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// Nothing of a stranger's page may be filled with what is here, be it an image or a script.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// `pages` as they are to be served to those who ask one of `hosts` for them. `contents` is what somebody reads who asks for a
/// page that is not there, after a line that says so.
pub(super) fn layers(pages: Router, hosts: Hosts, contents: &str) -> Router {
    let not_found = format!("there is no such page here\n\n{contents}");
    pages
        .fallback(async move || (StatusCode::NOT_FOUND, not_found.clone()))
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .layer(from_fn(reads_only))
        .layer(from_fn(refuses_other_pages))
        .layer(from_fn(move |request, next| answers_to(hosts, request, next)))
        .layer(map_response(with_headers))
}

/// Lets through what only reads. Whether there is an answer to OPTIONS is for pages to say.
async fn reads_only(request: Request, next: Next) -> Response {
    let method = request.method();
    let refusal = (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
    let reads = method == Method::GET || method == Method::HEAD;
    let answer = match reads || method == Method::OPTIONS {
        true => next.run(request).await,
        false => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    match answer.status() {
        StatusCode::METHOD_NOT_ALLOWED if !reads => ([(ALLOW, "GET, HEAD")], refusal).into_response(),
        _ => answer,
    }
}

/// Pages of other sites may lead here, and the Firefox Profiler's may read. What others ask for by themselves, browsers mark; it is
/// refused before anything is done for it.
async fn refuses_other_pages(request: Request, next: Next) -> Response {
    if is_by_another_page(request.headers()) && !is_front_end(request.headers()) {
        return (StatusCode::FORBIDDEN, "pages of other sites are not answered here\n").into_response();
    }
    next.run(request).await
}

fn is_by_another_page(headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    says("sec-fetch-site", "cross-site") && !says("sec-fetch-mode", "navigate")
}

async fn answers_to(hosts: Hosts, request: Request, next: Next) -> Response {
    if hosts.contain_that_of(&request) {
        return next.run(request).await;
    }
    let text = "this server is its own machine's alone: it answers where it is called localhost, 127.0.0.1 or [::1]\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

async fn with_headers(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(CACHE_CONTROL, "no-store");
    set(CROSS_ORIGIN_RESOURCE_POLICY, "same-origin");
    // A path may be a secret.
    set(REFERRER_POLICY, "no-referrer");
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CONTENT_POLICY));
    answer
}
