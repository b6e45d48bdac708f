//! Profiles over HTTP, as `net/http/pprof` gives them: a service for the server that the program has already.

use crate::{Profiler, Snapshot};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tower_service::Service;
use wlprof_export::by_name;

/// How long a profile takes that does not say how long, in seconds.
const USUAL_SECONDS: u64 = 30;

/// The longest profile, in seconds.
const MAX_SECONDS: u64 = 3600;

/// Profiles that are being made at a time.
const MAX_AT_A_TIME: usize = 16;

const INDEX: &str = "profile?seconds=30  the time of WebAssembly guests, for `go tool pprof`\n";

/// Answers `GET …/profile?seconds=30` with what is sampled from then on, in pprof's format: a service of the crate `tower-service`, as axum and
/// others take it.
///
/// ```no_run
/// # fn router(profiler: wlprof_inside::Profiler) {
/// # struct Router;
/// # impl Router {
/// #     fn new() -> Self { Self }
/// #     fn nest_service<S>(self, _: &str, _: S) -> Self { self }
/// # }
/// let router = Router::new().nest_service("/debug/pprof", wlprof_inside::PprofService::new(profiler));
/// # }
/// ```
///
/// `go tool pprof http://localhost:3000/debug/pprof/profile?seconds=10` shows it. With `&label=NAME:VALUE` it has only what runs with that
/// label.
///
/// # Overhead
/// A thread a request, until it is answered or given up. Sixteen are answered at a time.
///
/// # Security
/// Who may ask sees the names of all functions of all guests. The service checks nobody: put it where only operators come.
#[derive(Clone)]
pub struct PprofService {
    profiler: Profiler,
    at_work: Arc<AtomicUsize>,
}

impl PprofService {
    /// A service that shows what `profiler` samples.
    pub fn new(profiler: Profiler) -> Self {
        Self { profiler, at_work: Arc::default() }
    }

    /// What is asked for, or why it cannot be had.
    fn begin<B>(&self, request: &Request<B>) -> Result<Answer, (StatusCode, String)> {
        if request.method() != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n".to_owned()));
        }
        let page = request.uri().path().rsplit('/').next();
        if page == Some("") {
            return Err((StatusCode::OK, INDEX.to_owned()));
        }
        if page != Some("profile") {
            return Err((StatusCode::NOT_FOUND, format!("there is only this:\n{INDEX}")));
        }
        let query =
            Query::parse(request.uri().query().unwrap_or("")).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
        let place = Place::take(&self.at_work).ok_or_else(|| {
            let error = format!("{MAX_AT_A_TIME} profiles are being made: ask again when one is done\n");
            (StatusCode::SERVICE_UNAVAILABLE, error)
        })?;
        let answer = Answer::begin(query, self.profiler.clone(), place);
        answer.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
    }
}

impl<B> Service<Request<B>> for PprofService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let begun = self.begin(&request);
        Box::pin(async move {
            Ok(match begun {
                Ok(answer) => match answer.await {
                    Ok(profile) => response(StatusCode::OK, "application/octet-stream", profile),
                    Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                },
                Err((status, said)) => text(status, said),
            })
        })
    }
}

fn text(status: StatusCode, said: String) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", said.into_bytes())
}

fn response(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What a profile is asked for with.
#[derive(Debug, PartialEq)]
struct Query {
    seconds: u64,
    /// Name and value.
    label: Option<(String, String)>,
}

impl Query {
    /// Reads what stands behind the `?`. Others are ignored, as pprof's own servers do.
    fn parse(query: &str) -> Result<Self, String> {
        let mut read = Self { seconds: USUAL_SECONDS, label: None };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "seconds" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
                    read.seconds = seconds.ok_or_else(|| format!("seconds={value}: it takes 1 to {MAX_SECONDS}\n"))?;
                }
                "label" => {
                    let (name, value) =
                        value.split_once(':').ok_or_else(|| format!("label={value}: it takes NAME:VALUE\n"))?;
                    read.label = Some((name.to_owned(), value.to_owned()));
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

/// One of the profiles that are made at a time, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(at_work: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count: usize| (count < MAX_AT_A_TIME).then_some(count + 1);
        let taken = at_work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self(at_work.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A profile that a thread makes, which belongs to no runtime. If this is dropped, the thread ends.
struct Answer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    is_given_up: Condvar,
}

#[derive(Default)]
struct State {
    made: Option<io::Result<Vec<u8>>>,
    waker: Option<Waker>,
    given_up: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The profile; `None` if nobody waits for it any more.
    fn make(&self, query: Query, profiler: &Profiler) -> Option<io::Result<Vec<u8>>> {
        let window = match profiler.window() {
            Ok(window) => window,
            Err(error) => return Some(Err(error)),
        };
        let is_wanted = self.wait(Duration::from_secs(query.seconds));
        is_wanted.then(|| window.snapshot().and_then(|snapshot| pprof(snapshot, query.label)))
    }

    /// Waits for so long. `false` if nobody waits for the profile any more.
    fn wait(&self, long: Duration) -> bool {
        let begun = Instant::now();
        let mut state = self.lock();
        while !state.given_up {
            let left = long.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return true;
            }
            state = self.is_given_up.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

impl Answer {
    fn begin(query: Query, profiler: Profiler, place: Place) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let answer = Self(shared.clone());
        let make = move || {
            let _place = place;
            // Names are of whatever guests have.
            let made = catch_unwind(AssertUnwindSafe(|| shared.make(query, &profiler)));
            let failed = || Some(Err(io::Error::other("the profile could not be made: a part of wlprof has failed")));
            let mut state = shared.lock();
            state.made = made.unwrap_or_else(|_| failed());
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        };
        std::thread::Builder::new().name("wlprof window".to_owned()).spawn(make)?;
        Ok(answer)
    }
}

fn pprof(snapshot: Snapshot, label: Option<(String, String)>) -> io::Result<Vec<u8>> {
    let shown = match label {
        Some((name, value)) => snapshot.of_label(&name, &value),
        None => snapshot,
    };
    let format = by_name("pprof").ok_or_else(|| io::Error::other("this program was built without pprof's format"))?;
    let mut profile = Vec::new();
    shown.write(format, &mut profile)?;
    Ok(profile)
}

impl Future for Answer {
    type Output = io::Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.made.take() {
            Some(made) => Poll::Ready(made),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.lock().given_up = true;
        self.0.is_given_up.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> PprofService {
        PprofService::new(Profiler::start().unwrap())
    }

    /// What a request is answered with at once.
    fn answered(service: &mut PprofService, method: &str, path: &str) -> Option<(StatusCode, bool)> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let mut future = service.call(request);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => {
                let is_text = response.headers()[CONTENT_TYPE].to_str().unwrap().starts_with("text/plain");
                Some((response.status(), is_text))
            }
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_cannot_be_had_is_said_at_once() {
        let mut service = service();
        for (method, path, status) in [
            ("GET", "/debug/pprof/", StatusCode::OK),
            ("GET", "/debug/pprof/heap", StatusCode::NOT_FOUND),
            ("POST", "/debug/pprof/profile", StatusCode::METHOD_NOT_ALLOWED),
            ("GET", "/profile?seconds=0", StatusCode::BAD_REQUEST),
            ("GET", "/profile?seconds=3601", StatusCode::BAD_REQUEST),
            ("GET", "/profile?seconds=ten", StatusCode::BAD_REQUEST),
            ("GET", "/profile?label=tenant", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(answered(&mut service, method, path), Some((status, true)), "{method} {path}");
        }
        let asked = Query { seconds: 5, label: Some(("tenant".to_owned(), "a b:c".to_owned())) };
        assert_eq!(Query::parse("debug=1&seconds=5&label=tenant:a%20b:c"), Ok(asked));
    }

    #[test]
    fn so_many_are_made_at_a_time_and_those_that_are_given_up_make_room() {
        let mut service = service();
        let request = || Request::builder().uri("/profile?seconds=3600").body(()).unwrap();
        let mut many: Vec<_> = (0..MAX_AT_A_TIME).map(|_| service.call(request())).collect();
        let too_many = answered(&mut service, "GET", "/profile?seconds=3600");
        assert_eq!(too_many, Some((StatusCode::SERVICE_UNAVAILABLE, true)));
        many.pop();
        while service.at_work.load(Ordering::Relaxed) == MAX_AT_A_TIME {
            std::thread::yield_now();
        }
        assert_eq!(answered(&mut service, "GET", "/profile?seconds=3600"), None, "it is made");
    }
}
