//! What the Firefox Profiler's page needs to load a profile from here: leave to read it (CORS).

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use wlprof_show::firefox_profiler::FRONT_END;

/// What Chromium asks and is to be answered before a page of the web may reach an address of this machine's.
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// An endpoint that answers with a profile: the Firefox Profiler's page may read it, and no other page of the web.
pub(crate) fn for_firefox_profiler<S>(endpoint: MethodRouter<S>) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    endpoint.options(preflight).layer(from_fn(allow))
}

/// Answers a browser that asks whether it may send a request.
async fn preflight(headers: HeaderMap) -> Response {
    if !is_front_end(&headers) || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return (StatusCode::FORBIDDEN, format!("only {FRONT_END} may read this from another page\n")).into_response();
    }
    let mut answer = StatusCode::NO_CONTENT.into_response();
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
    if headers.contains_key(REQUEST_PRIVATE_NETWORK) {
        answer.headers_mut().insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    answer
}

/// Tells the browser that the page which asks may read the answer, if it may.
async fn allow(request: Request, next: Next) -> Response {
    let may_read = is_front_end(request.headers());
    let mut answer = next.run(request).await;
    answer.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    if may_read {
        answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(FRONT_END));
    }
    answer
}

pub(super) fn is_front_end(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin == FRONT_END)
}
