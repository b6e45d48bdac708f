//! A server at work: where it is connected to, how it is begun, and how it ends.

use super::Serve;
use super::connections::{Bounds, Server};
use super::headers::Headers;
use super::stores::{Reuse, Stores};
use super::totals::Totals;
use super::turns;
use crate::failure::{CANNOT_RUN, FAILED, Failure};
use crate::say;
use crate::trap::Failures;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use tokio::sync::watch;
use wlprof::profiler::Profiler;
use wlprof_run::guest::{Guest, LinkedComponent};
use wlprof_run::profile::RunEnd;
use wlprof_wasi::{Exit, WasiOptions};

/// Where a server is connected to.
pub(super) struct Ports {
    pub(super) requests: TcpListener,
    /// Whoever connects to this one ends it.
    pub(super) shutdown: Option<TcpListener>,
}

impl Ports {
    pub(super) fn bind(serve: &Serve) -> Result<Self, Failure> {
        let bind = |option: &str, address: SocketAddr| {
            TcpListener::bind(address).map_err(|error| Failure::new(FAILED, format!("{option} {address}: {error}")))
        };
        let shutdown = serve.shutdown_addr.map(|address| bind("--shutdown-addr", address)).transpose()?;
        Ok(Self { requests: bind("--addr", serve.addr)?, shutdown })
    }
}

/// Begins to serve `guest`, whose code has checks if it `takes_turns`. What this gives stops it; `events` receives its end.
pub(super) fn begin(
    serve: &Serve,
    (guest, takes_turns): (&Guest, bool),
    wasi: WasiOptions,
    profiler: Option<Profiler>,
    (totals, headers): (Arc<Totals>, Headers),
    ports: Ports,
    events: Sender<RunEnd>,
) -> Result<watch::Sender<bool>, Failure> {
    let Some(LinkedComponent::Handler(handler)) = &guest.component else {
        return Err(Failure::new(CANNOT_RUN, "it is no component with a `wasi:http` handler"));
    };
    let failed = |error: std::io::Error| Failure::new(FAILED, error);
    let is_concurrent = handler.is_concurrent();
    let (few, many) = if is_concurrent { (16, 128) } else { (1, 1) };
    let time_limit = serve.guest.wasmtime.timeout();
    if takes_turns {
        turns::begin(&guest.engine, time_limit).map_err(failed)?;
    }
    let (stop, stopped) = watch::channel(false);
    let stores = Stores {
        engine: guest.engine.clone(),
        handler: handler.clone(),
        name: guest.name.clone(),
        failures: Arc::new(Failures::of(&guest.code)),
        wasi,
        profiler,
        profiles_memory: serve.profiling.memory.memory,
        reuse: Reuse {
            requests: serve.max_instance_reuse_count.unwrap_or(many),
            at_a_time: if is_concurrent { serve.max_instance_concurrent_reuse_count.unwrap_or(few) } else { 1 },
            idle: serve.idle_instance_timeout,
            time_limit,
        },
        takes_turns,
        says_which: !serve.no_logging_prefix,
        stopped: stopped.clone(),
    };
    let bounds = Bounds { requests: serve.max_concurrent_requests, connections: serve.max_concurrent_connections };
    let address = ports.requests.local_addr().map_err(failed)?;
    let shutdown = ports.shutdown.as_ref().map(TcpListener::local_addr).transpose().map_err(failed)?;
    let server = Server::new(stores, bounds, totals, headers, stop.clone());
    std::thread::Builder::new()
        .name("wlprof serve".into())
        .spawn(move || {
            let exit = match catch_unwind(AssertUnwindSafe(|| server.run(ports, stopped))) {
                Ok(Ok(())) => Exit::Returned(Vec::new()),
                Ok(Err(error)) => Exit::NotCallable(error.into()),
                Err(_) => Exit::NotCallable(wasmtime::format_err!("the server panicked")),
            };
            // Nobody waits any more if it was interrupted twice.
            let _ = events.send(RunEnd::Exit(exit));
        })
        .map_err(failed)?;
    if !serve.profiling.output.quiet {
        shutdown.into_iter().for_each(|address| say::line(format_args!("a connection to {address} ends it")));
        say::line(format_args!("serving at http://{address}/"));
    }
    Ok(stop)
}

/// How it ended.
pub(super) enum ServeOutcome {
    /// All requests that had begun were answered.
    Whole,
    /// Some were not.
    InPart,
}

/// Waits until as many requests have been answered as were wanted, or an interruption; and then for those that have begun, until another
/// interruption.
///
/// # Errors
/// Why it could not serve.
pub(super) fn wait(events: &Receiver<RunEnd>, stop: &watch::Sender<bool>) -> wasmtime::Result<ServeOutcome> {
    loop {
        match events.recv() {
            // It may have been stopped otherwise, too.
            Ok(RunEnd::Interrupted(_)) if *stop.borrow() => return Ok(ServeOutcome::InPart),
            Ok(RunEnd::Interrupted(_)) => {
                say::line(format_args!("waiting for requests that have begun; once more breaks them off"));
                stop.send_replace(true);
            }
            Ok(RunEnd::Exit(Exit::NotCallable(error))) => return Err(error),
            Ok(RunEnd::Exit(_)) => return Ok(ServeOutcome::Whole),
            Err(_) => wasmtime::bail!("nobody says any more how it ended"),
        }
    }
}
