//! The stores that requests are answered in: each made for its first request, sampled, and gone when it has answered enough.

use super::turns::{self, Deadline};
use crate::say;
use crate::trap::Failures;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::Sleep;
use wasmtime::component::GuestTaskId;
use wasmtime::{Engine, Store, StoreContextMut};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::handler::{HandlerState, Instance, ShouldAccept, WorkerExpiration, WorkerState, WorkerStatus};
use wlprof::profiler::{Attach, Profiler, StoreHandle};
use wlprof_recording::{OTHER_REQUESTS, REQUEST, SEVERAL, STATUS, status_text};
use wlprof_show::escape;
use wlprof_wasi::{GuestState, HttpHandler, Stdio, WasiOptions, make_room_for_profiler, watch_memory};

/// What stores are made of.
pub(super) struct Stores {
    pub(super) engine: Engine,
    pub(super) handler: Arc<HttpHandler>,
    /// The guest's.
    pub(super) name: String,
    /// What their traps are shown with.
    pub(super) failures: Arc<Failures>,
    pub(super) wasi: WasiOptions,
    /// What samples them.
    pub(super) profiler: Option<Profiler>,
    /// What they allocate is profiled, too.
    pub(super) profiles_memory: bool,
    pub(super) reuse: Reuse,
    /// Their code has checks, at which they let others run.
    pub(super) takes_turns: bool,
    /// Each line of output says which store's it is.
    pub(super) says_which: bool,
    /// Turns true when no more requests come.
    pub(super) stopped: watch::Receiver<bool>,
}

/// For how many requests a store is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reuse {
    pub(super) requests: usize,
    pub(super) at_a_time: usize,
    /// How long it waits for another.
    pub(super) idle: Duration,
    /// How long a request may take, and what is done when it has been answered.
    pub(super) time_limit: Option<Duration>,
}

/// A request, as far as its store knows it.
pub(super) struct Request {
    pub(super) kind: Arc<str>,
    /// The store that answers it, if that is sampled.
    answered_in: OnceLock<Arc<RequestStore>>,
}

impl Request {
    pub(super) fn new(kind: Arc<str>) -> Self {
        Self { kind, answered_in: OnceLock::new() }
    }

    /// It has been answered so, and counts as one of that kind.
    pub(super) fn answered(&self, kind: &str, status: Option<u16>) {
        if let Some(store) = self.answered_in.get() {
            store.label(STATUS, &status_text(status));
            if kind != &*self.kind {
                store.is_not_told_apart(&self.kind);
            }
        }
    }
}

/// A store that answers requests, as profiles are to show it.
struct RequestStore {
    attached: StoreHandle,
    labels: Mutex<[Option<String>; 2]>,
}

impl RequestStore {
    /// Its request of that kind counts among others.
    fn is_not_told_apart(&self, kind: &str) {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let label = labels[0].get_or_insert_default();
        if label == kind {
            OTHER_REQUESTS.clone_into(label);
            self.attached.set_label(REQUEST, OTHER_REQUESTS);
        }
    }

    /// One of its requests has this label. Where others had another, all have both.
    fn label(&self, name: &str, value: &str) {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let label = &mut labels[usize::from(name == STATUS)];
        let now = match label {
            Some(label) if label == value => return,
            Some(_) => SEVERAL,
            None => value,
        };
        *label = Some(now.to_owned());
        self.attached.set_label(name, now);
    }
}

/// Makes stores, one for each worker of the handler.
pub(super) struct Workers {
    stores: Stores,
    next: AtomicU64,
    /// Held by each store as long as it is there.
    alive: Arc<()>,
}

impl Workers {
    pub(super) fn new(stores: Stores, alive: Arc<()>) -> Self {
        Self { stores, next: AtomicU64::new(0), alive }
    }
}

impl HandlerState for Workers {
    type StoreData = GuestState;
    type WorkerExpiration = Expiration;
    type WorkerState = Worker;

    async fn instantiate(&self) -> wasmtime::Result<Instance<GuestState, Expiration, Worker>> {
        // From here on it is waited for.
        let alive = self.alive.clone();
        let Stores {
            engine,
            handler,
            name,
            failures,
            wasi,
            profiler,
            profiles_memory,
            reuse,
            takes_turns,
            says_which,
            stopped,
        } = &self.stores;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut wasi = WasiOptions { stdio: Stdio::Lines(says_which.then_some(number)), ..wasi.clone() };
        // As under `wasmtime serve`.
        wasi.environment.push(("INSTANCE_ID".to_owned(), number.to_string()));
        let mut store = wasi.store(engine)?;
        let attach = |profiler: &Profiler| {
            make_room_for_profiler(&mut store);
            profiler.attach(&mut store, Attach::named(name))
        };
        let attached = profiler.as_ref().map(attach).transpose()?;
        let deadline = reuse.time_limit.map(Deadline::new);
        if *takes_turns {
            turns::take_turns(&mut store, attached.clone(), deadline.clone());
        }
        let proxy = handler.instantiate(&mut store).await?;
        if let Some(attached) = &attached {
            make_room_for_profiler(&mut store);
            attached.component_instantiated(&mut store)?;
        }
        if let Some(attached) = attached.clone().filter(|_| *profiles_memory) {
            watch_memory(&mut store, move |bytes| attached.memory_grows(bytes));
        }
        let answering = attached.map(|attached| Arc::new(RequestStore { attached, labels: Mutex::default() }));
        Ok(Instance {
            store,
            proxy,
            view: WasiHttpView::http,
            expiration: Expiration::new(*reuse, stopped.clone()),
            state: Worker { failures: failures.clone(), reuse: *reuse, answering, deadline, _alive: alive },
        })
    }
}

/// When a store goes that has nothing to do, or takes too long.
pub(super) struct Expiration {
    reuse: Reuse,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Ends when no more requests come; none when it has ended.
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Expiration {
    fn new(reuse: Reuse, mut stopped: watch::Receiver<bool>) -> Self {
        let stopped = async move {
            // Without a sender nobody serves.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        Self { reuse, sleep: None, stopped: Some(Box::pin(stopped)) }
    }

    fn is_stopped(&mut self, context: &mut Context<'_>) -> bool {
        self.stopped.take_if(|stopped| stopped.as_mut().poll(context).is_ready());
        self.stopped.is_none()
    }
}

impl WorkerExpiration for Expiration {
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>, status: WorkerStatus, since: Instant) -> Poll<()> {
        let limit = match status {
            WorkerStatus::Idle if self.is_stopped(context) => return Poll::Ready(()),
            WorkerStatus::Idle => Some(self.reuse.idle),
            WorkerStatus::Requests | WorkerStatus::PostReturn => self.reuse.time_limit,
        };
        let until = limit.and_then(|limit| since.checked_add(limit)).map(tokio::time::Instant::from_std);
        let Some(until) = until else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(context)
    }
}

/// What a store is to answer, and how it is sampled.
pub(super) struct Worker {
    failures: Arc<Failures>,
    reuse: Reuse,
    answering: Option<Arc<RequestStore>>,
    deadline: Option<Deadline>,
    _alive: Arc<()>,
}

impl WorkerState for Worker {
    type StoreData = GuestState;
    type RequestData = Arc<Request>;

    fn should_accept_request(&self, now: usize, so_far: usize) -> ShouldAccept {
        if so_far >= self.reuse.requests {
            ShouldAccept::Never
        } else if now >= self.reuse.at_a_time {
            ShouldAccept::No
        } else {
            ShouldAccept::Yes
        }
    }

    fn on_request_start(
        &self,
        _: StoreContextMut<'_, GuestState>,
        request: Arc<Request>,
        _: GuestTaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + 'static + Send + Sync>> {
        if let Some(answering) = &self.answering {
            answering.label(REQUEST, &request.kind);
            // It is one store's.
            let _ = request.answered_in.set(answering.clone());
        }
        match &self.deadline {
            Some(deadline) => Box::pin(tokio::time::sleep_until(deadline.begin_anew().into())),
            None => Box::pin(std::future::pending()),
        }
    }

    fn drop(&self, mut store: Store<GuestState>, result: wasmtime::Result<()>) {
        if let Some(answering) = &self.answering {
            answering.attached.read_heap(&mut store);
        }
        drop(store);
        if let Err(error) = result {
            let text = format!("wlprof: a request {}", self.failures.how_it_failed(&error));
            say::line(format_args!("{}", escape::multi_line(&text)));
        }
    }
}
