//! The server: connections, requests, and an end for both.

use super::stores::{Request, Stores, Workers};
use super::totals::Totals;
use crate::cli::{escape, say};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
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

/// How long the server rests when the system gives it no more connections, as where there are too many open files.
const REST: Duration = Duration::from_millis(100);
/// How often it looks whether the last stores have gone.
const LOOK: Duration = Duration::from_millis(5);

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
    places: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    totals: Arc<Totals>,
    stop: watch::Sender<bool>,
}

impl Server {
    pub(super) fn new(stores: Stores, bounds: Bounds, totals: Arc<Totals>, stop: watch::Sender<bool>) -> Arc<Self> {
        let alive = Arc::new(());
        let handler = ProxyHandler::new(Workers::new(stores, alive.clone()));
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        let (connections, places) = (places(bounds.connections), places(bounds.requests));
        Arc::new(Self { handler, alive, places, connections, totals, stop })
    }

    /// Serves until it is stopped, and all that has begun is over.
    pub(super) fn run(self: Arc<Self>, listener: TcpListener, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let open = GracefulShutdown::new();
            tokio::select! {
                // Its sender is this server's own.
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = self.accept(listener, &open) => {}
            }
            open.shutdown().await;
            // What a guest does when it has answered is part of its run.
            while Arc::strong_count(&self.alive) > IDLE_HOLDERS {
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        })
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
            let connection = http1::Builder::new().keep_alive(true).serve_connection(TokioIo::new(stream), service);
            let connection = open.watch(connection);
            tokio::spawn(async move {
                // A client that breaks off or breaks the rules harms nobody but itself.
                let _ = connection.await;
                drop(place);
            });
        }
    }

    async fn answer(self: Arc<Self>, request: hyper::Request<Incoming>) -> Response<Answer> {
        let since = Instant::now();
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let kind = self.totals.kinds.of(request.method().as_str(), request.uri().path());
        let known = Arc::new(Request::new(kind.clone()));
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let answer = self.handler.handle(known.clone(), request).await.unwrap_or_else(|error| {
            let text = format!("wlprof: {kind} failed: {error:#}");
            say::line(format_args!("{}", escape::multi_line(&text)));
            failed()
        });
        let status = answer.status().as_u16();
        known.answered(status);
        let ending = Ending { server: self.clone(), kind, status, since };
        answer.map(|body| Answer { body, _ending: ending })
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
    _ending: Ending,
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
struct Ending {
    server: Arc<Server>,
    kind: Arc<str>,
    status: u16,
    since: Instant,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Server { totals, stop, .. } = &*self.server;
        if totals.add(self.kind.clone(), self.status, self.since.elapsed()) {
            // Nobody may listen any more.
            let _ = stop.send(true);
        }
    }
}
