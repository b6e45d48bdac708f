//! A request: a store that is attached in one of the ways there are, runs its guest, and goes.

use super::{MAX_DEPTH, PLANNED, WASM_ENDING};
use crate::guest::fixture;
use crate::stress::Random;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use wasmtime::{Caller, InstancePre, Store, WasmBacktrace};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};
use wlprof::{Attach, Profiler};

/// What a host function does, once it is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Return,
    Yield,
    Panic,
    /// It never returns, and its future is dropped.
    Never,
}

/// What a request runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guest {
    /// Wasm alone, whose functions have their number at the end of their names.
    Wasm {
        number: u64,
        unloading: Unloading,
    },
    Go(Unloading),
    Python(Unloading),
}

/// When the profiler is told to let go of a module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unloading {
    /// Others run it as well.
    Never,
    /// When its only store has gone.
    AtEnd,
    /// Before, which it should not be.
    Early,
}

impl Guest {
    /// What its module is called.
    pub(super) fn name(self) -> String {
        match self {
            Self::Wasm { number, .. } => format!("wasm {number}"),
            Self::Go(_) => "go.wasm".to_owned(),
            Self::Python(_) => "python.wasm".to_owned(),
        }
    }

    fn unloading(self) -> Unloading {
        match self {
            Self::Wasm { unloading, .. } | Self::Go(unloading) | Self::Python(unloading) => unloading,
        }
    }

    pub(super) fn goes_early(self) -> bool {
        matches!(self.unloading(), Unloading::Early)
    }

    fn goes_at_end(self) -> bool {
        matches!(self.unloading(), Unloading::AtEnd)
    }

    pub(super) fn module(self) -> Vec<u8> {
        let bytes = |file_name| std::fs::read(fixture(file_name)).unwrap();
        match self {
            Self::Wasm { number, .. } => wasm(number).into_bytes(),
            Self::Go(_) => bytes("go-naps-1.27.wasm"),
            Self::Python(_) => bytes("python-3.11.wasm"),
        }
    }
}

/// It calls itself, works, and calls the host. No call of it is its function's last, so that all are on the stack.
fn wasm(number: u64) -> String {
    let ending = format!("{WASM_ENDING}{number}");
    format!(
        r#"(module
        (import "h" "f" (func $f (param i32) (result i32)))
        (func $work{ending} (param $n i32) (result i32)
            (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
            (local.get $n))
        (func $deep{ending} (param $depth i32) (param $n i32) (result i32)
            (if (result i32) (local.get $depth)
                (then (i32.or (i32.const 0)
                    (call $deep{ending} (i32.sub (local.get $depth) (i32.const 1)) (local.get $n))))
                (else (i32.or (call $work{ending} (local.get $n)) (call $f (local.get $n))))))
        (func $run{ending} (export "run") (param $depth i32) (param $n i32) (result i32)
            (i32.or (i32.const 0) (call $deep{ending} (local.get $depth) (local.get $n)))))"#
    )
}

const SCRIPT: &str = "
def leaf(n):
    return sum(range(n))
def branch(n):
    return leaf(n) + leaf(n)
for _ in range(200):
    branch(2000)
";

pub(super) struct Host {
    pub(super) wasi: WasiP1Ctx,
    request: Arc<Request>,
}

/// What there is to know of a store.
pub(super) struct Request {
    pub(super) guest: Guest,
    pub(super) act: Act,
    /// Names of the functions at its host calls, innermost first.
    pub(super) backtraces: Mutex<BTreeSet<Vec<String>>>,
    /// Somebody waits to drop it.
    is_in_host: tokio::sync::Notify,
}

impl Request {
    pub(super) fn new(guest: Guest, act: Act) -> Arc<Self> {
        Arc::new(Self { guest, act, backtraces: Mutex::default(), is_in_host: tokio::sync::Notify::new() })
    }
}

/// By the names of their stores.
pub(super) type Requests = Arc<Mutex<HashMap<String, Arc<Request>>>>;

fn spin() {
    (0..300_000_u32).for_each(|round| {
        std::hint::black_box(round);
    });
}

pub(super) async fn host_call(caller: Caller<'_, Host>, number: i32) -> i32 {
    let frames = WasmBacktrace::capture(&caller);
    let names = frames.frames().iter().map(|frame| frame.func_name().unwrap().to_owned());
    let request = caller.data().request.clone();
    request.backtraces.lock().unwrap().insert(names.collect());
    spin();
    match request.act {
        Act::Return => {}
        Act::Yield => {
            for _ in 0..5 {
                tokio::task::yield_now().await;
                spin();
            }
        }
        Act::Panic => std::panic::resume_unwind(Box::new(PLANNED)),
        Act::Never => {
            request.is_in_host.notify_one();
            std::future::pending().await
        }
    }
    number
}

fn world(guest: Guest) -> WasiP1Ctx {
    let mut world = WasiCtxBuilder::new();
    if let Guest::Python(_) = guest {
        let library = fixture("python-3.11-lib");
        world.preopened_dir(library, "/usr/local/lib", FsPerms::ReadOnly).unwrap();
        world.args(&["python", "-I", "-c", SCRIPT]);
    }
    world.build_p1()
}

/// Serves one.
pub(super) async fn serve(
    name: String,
    profiler: Option<Profiler>,
    pre: InstancePre<Host>,
    request: Arc<Request>,
    mut random: Random,
) -> wasmtime::Result<()> {
    let module = pre.module().clone();
    let host = Host { wasi: world(request.guest), request: request.clone() };
    let mut store = Store::new(module.engine(), host);
    let hooked = Arc::new(AtomicU64::new(0));
    let mut attached = None;
    if let Some(profiler) = &profiler {
        let mut attach = Attach::named(&name).label("tenant", tenant(&name));
        if random.below(2) == 0 {
            let hooked = hooked.clone();
            attach = attach.call_hook(move |_, _| {
                hooked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        }
        attached = Some(profiler.attach(&mut store, attach)?);
    }
    let (depth, rounds) = (random.below(MAX_DEPTH) as i32, 1000 + random.below(4_000_000) as i32);
    let (guest, told) = (request.guest, attached.clone());
    let (unloaded, early) = (module.clone(), profiler.clone().filter(|_| guest.goes_early()));
    let calls = async move {
        let instance = pre.instantiate_async(&mut store).await?;
        if let Some(attached) = &told {
            attached.instantiated(&mut store, &instance)?;
        }
        early.inspect(|profiler| profiler.remove(&unloaded));
        if let Guest::Wasm { .. } = guest {
            let run = instance.get_typed_func::<(i32, i32), i32>(&mut store, "run")?;
            run.call_async(&mut store, (depth, rounds)).await.map(drop)
        } else {
            let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
            start.call_async(&mut store, ()).await.or_else(|error| match error.downcast_ref() {
                Some(wasmtime_wasi::I32Exit(0)) => Ok(()),
                _ => Err(error),
            })
        }
    };
    let calls: std::pin::Pin<Box<dyn Future<Output = wasmtime::Result<()>> + Send>> = match &attached {
        Some(attached) if random.below(3) > 0 => Box::pin(attached.run(calls)),
        _ => Box::pin(calls),
    };
    // Whatever becomes of it.
    let _last = Last { module, profiler: profiler.filter(|_| guest.goes_at_end()) };
    if matches!((guest, request.act), (Guest::Wasm { .. }, Act::Never)) {
        let (mut calls, mut in_host) = (calls, std::pin::pin!(request.is_in_host.notified()));
        let either = |context: &mut Context<'_>| match calls.as_mut().poll(context) {
            Poll::Pending => in_host.as_mut().poll(context).map(Ok),
            ended => ended,
        };
        std::future::poll_fn(either).await
    } else {
        calls.await
    }
}

/// Removes a module when the last store that runs it has gone.
struct Last {
    module: wasmtime::Module,
    profiler: Option<Profiler>,
}

impl Drop for Last {
    fn drop(&mut self) {
        self.profiler.iter().for_each(|profiler| profiler.remove(&self.module));
    }
}

/// Whose a store is: the last digit of its number.
pub(super) fn tenant(store: &str) -> &str {
    &store[store.len() - 1..]
}
