//! The server itself: a thread with a runtime of its own, connections within bounds, and an end.

use super::hosts::Hosts;
use super::layers::layers;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio_io_timeout::TimeoutStream;

/// How long the server rests when the system gives it no more connections, as where there are too many open files.
const REST: Duration = Duration::from_millis(100);

/// Threads for what handlers have done elsewhere (`tokio::task::spawn_blocking`). More have to wait.
const BLOCKING_THREADS: usize = 4;

/// What a request may have before its body, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// What clients may take of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many connections there are at a time. More wait in the system's queue.
    pub(super) connections: usize,
    /// How long a connection may say nothing, or take for the head of a request.
    pub(super) head: Duration,
    /// How long a client may read nothing of an answer.
    pub(super) write: Duration,
    /// How long answers that were begun may go on when the server is stopped.
    pub(super) stop: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connections: 64, head: seconds(15), write: seconds(30), stop: seconds(1) }
    }
}

/// A server that runs, until it is stopped or dropped.
///
/// Handlers run on its one thread: what takes more than some milliseconds of computing belongs into
/// `tokio::task::spawn_blocking`. The future of a handler is dropped when its client has gone.
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `pages` at `listener`: only to those who read (GET, HEAD), and, if it is on loopback, to this machine alone, with
    /// headers that keep other pages of the browser out. Whoever asks for another page reads `contents`, which is to say what
    /// there is.
    ///
    /// # Errors
    /// If the system has no thread or no file for it.
    pub(crate) fn start(listener: TcpListener, pages: Router, contents: &str) -> io::Result<Self> {
        Self::start_within(Bounds::default(), listener, pages, contents)
    }

    pub(super) fn start_within(
        bounds: Bounds,
        listener: TcpListener,
        pages: Router,
        contents: &str,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let pages = layers(pages, Hosts::of(address), contents);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS);
        let runtime = runtime.thread_name("wlprof http work").build()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("wlprof http".into())
            .spawn(move || run(runtime, bounds, listener, pages, stopped))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the port that it was given. In URLs it stands as it is printed: `http://{address}/`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests and returns when those that there are have been answered, but after a second at the latest:
    /// what is not over by then is cut off.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    /// As [`Server::stop`], with another time for what has been begun.
    pub(crate) fn stop_within(mut self, patience: Duration) {
        if let Some(stop) = self.stop.take() {
            // If it does not hear of it, it has ended.
            let _ = stop.send(patience);
        }
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has been told, and it has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until `stopped` says how long answers that were begun may go on, or its sender is gone.
fn run(
    runtime: Runtime,
    bounds: Bounds,
    listener: tokio::net::TcpListener,
    pages: Router,
    stopped: oneshot::Receiver<Duration>,
) {
    runtime.block_on(async {
        let connections = Arc::new(GracefulShutdown::new());
        let accepting = tokio::spawn(accept(bounds, listener, pages, connections.clone()));
        let patience = stopped.await.unwrap_or(bounds.stop);
        accepting.abort();
        let _ = accepting.await;
        // What accepted had the other handle on them.
        if let Some(connections) = Arc::into_inner(connections) {
            let _ = tokio::time::timeout(patience, connections.shutdown()).await;
        }
    });
    // Does not wait for what handlers have done elsewhere.
    runtime.shutdown_background();
}

async fn accept(bounds: Bounds, listener: tokio::net::TcpListener, pages: Router, connections: Arc<GracefulShutdown>) {
    let service = TowerToHyperService::new(pages);
    let places = Arc::new(Semaphore::new(bounds.connections));
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(LONGEST_HEAD);
        let connection = protocol.serve_connection(TokioIo::new(bounded(stream, bounds)), service.clone());
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off or breaks the rules harms nobody but itself.
            let _ = connection.await;
            drop(place);
        });
    }
}

/// The stream with an end to what waits for its reader.
fn bounded(stream: TcpStream, bounds: Bounds) -> std::pin::Pin<Box<TimeoutStream<TcpStream>>> {
    // Answers are written whole: there is nothing to gather.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(bounds.write));
    Box::pin(stream)
}
