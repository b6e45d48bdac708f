//! The server: connections, requests, and an end for both.

use super::headers::Headers;
use super::serving::Ports;
use super::stores::{Request, Stores, Workers};
use super::totals::Totals;
use crate::say;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::handler::ProxyHandler;
use wlprof_show::escape;

/// How long the server rests when the system gives it no more connections, as where there are too many open files.
const REST: Duration = Duration::from_millis(100);
/// How often it looks whether the last stores have gone.
const LOOK: Duration = Duration::from_millis(5);
/// How long clients have, when all is answered, to read what was sent last.
const LAST_READS: Duration = Duration::from_secs(2);

/// How much is done at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) requests: usize,
    pub(super) connections: usize,
}

pub(super) struct Server {
    handler: ProxyHandler<Workers>,
    /// Held by each store.
    alive: Arc<()>,
    /// Held by each request.
    in_work: Arc<()>,
    places: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    totals: Arc<Totals>,
    headers: Headers,
    stop: watch::Sender<bool>,
}

impl Server {
    pub(super) fn new(
        stores: Stores,
        bounds: Bounds,
        totals: Arc<Totals>,
        headers: Headers,
        stop: watch::Sender<bool>,
    ) -> Arc<Self> {
        let alive = Arc::new(());
        let handler = ProxyHandler::new(Workers::new(stores, alive.clone()));
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let (connections, places) = (places(bounds.connections), places(bounds.requests));
        let in_work = Arc::new(());
        Arc::new(Self { handler, alive, in_work, places, connections, totals, headers, stop })
    }

    /// Serves until it is stopped, and all that has begun is over.
    pub(super) fn run(self: Arc<Self>, ports: Ports, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let listener = asynchronous(ports.requests)?;
            let shutdown = ports.shutdown.map(asynchronous).transpose()?;
            let open = GracefulShutdown::new();
            tokio::select! {
                // Its sender is this server's own.
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = connected(shutdown) => {
                    self.stop.send_replace(true);
                }
                () = self.accept(listener, &open) => {}
            }
            tokio::select! {
                () = open.shutdown() => {}
                // Others have sent a part of a request, and may never send the rest.
                () = self.has_answered() => {}
            }
            // What a guest does when it has answered is part of its run.
            while Arc::strong_count(&self.alive) > IDLE_HOLDERS {
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        })
    }

    /// Waits until all requests that came have been answered, and what clients take to read that.
    async fn has_answered(&self) {
        let is_at_work = || Arc::strong_count(&self.in_work) > 1;
        loop {
            while is_at_work() {
                tokio::time::sleep(LOOK).await;
            }
            tokio::time::sleep(LAST_READS).await;
            if !is_at_work() {
                return;
            }
        }
    }

    async fn accept(self: &Arc<Self>, listener: tokio::net::TcpListener, open: &GracefulShutdown) {
        // The semaphore is never closed.
        while let Ok(place) = self.connections.clone().acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            // Guests may send little at a time.
            let _ = stream.set_nodelay(true);
            let server = self.clone();
            let service = service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            // With a timer it has an end to how long the head of a request may take.
            let mut http = http1::Builder::new();
            http.keep_alive(true).timer(TokioTimer::new());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            let connection = open.watch(connection);
            tokio::spawn(async move {
                // A client that breaks off or breaks the rules harms nobody but itself.
                let _ = connection.await;
                drop(place);
            });
        }
    }

    async fn answer(self: Arc<Self>, mut request: hyper::Request<Incoming>) -> Response<Answer> {
        let since = Instant::now();
        let in_work = self.in_work.clone();
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let kind = self.totals.kind(request.method().as_str(), request.uri().path());
        self.headers.apply(request.headers_mut());
        let known = Arc::new(Request::new(kind.clone()));
        // From here on it counts, if its client goes as well.
        let mut ending =
            EndGuard { server: self.clone(), request: known.clone(), status: None, since, _in_work: in_work };
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let answer = self.handler.handle(known, request).await.unwrap_or_else(|error| {
            let text = format!("wlprof: {kind} failed: {error:#}");
            say::line(format_args!("{}", escape::multi_line(&text)));
            failed()
        });
        ending.status = Some(answer.status().as_u16());
        answer.map(|body| Answer { body, _ending: ending })
    }
}

fn asynchronous(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Waits until somebody connects, for ever if nobody can.
async fn connected(listener: Option<tokio::net::TcpListener>) {
    match listener {
        Some(listener) => {
            while listener.accept().await.is_err() {
                tokio::time::sleep(REST).await;
            }
        }
        None => std::future::pending().await,
    }
}

/// Who holds [`Server::alive`] if there is no store: the server and what makes stores.
const IDLE_HOLDERS: usize = 2;

/// What is answered where the guest does not.
fn failed() -> Response<WasiBody> {
    const TEXT: &str = "500 Internal Server Error\n";
    let body = Full::new(Bytes::from_static(TEXT.as_bytes())).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    answer
}

/// A body of an answer, whose end is that of the request.
struct Answer {
    body: WasiBody,
    _ending: EndGuard,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = <WasiBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts a request when its answer is over, or its client has gone.
struct EndGuard {
    server: Arc<Server>,
    request: Arc<Request>,
    /// Of the answer, once that has begun.
    status: Option<u16>,
    since: Instant,
    _in_work: Arc<()>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let Server { totals, stop, .. } = &*self.server;
        let (kind, is_last) = totals.add(self.request.kind.clone(), self.status, self.since.elapsed());
        self.request.answered(&kind, self.status);
        if is_last {
            // Nobody may listen any more.
            let _ = stop.send(true);
        }
    }
}
