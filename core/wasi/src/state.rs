//! What the store of a guest holds.

use super::flags::Flags;
use wasmtime::{ResourceLimiter, Store, StoreLimits};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView, p2};

/// What the store of a guest holds.
pub struct GuestState {
    pub(super) wasi: WasiP1Ctx,
    http: WasiHttpCtx,
    http_chunks: HttpChunks,
    limits: Limits,
}

impl GuestState {
    /// With a world that was built otherwise than of [`WasiOptions`](super::WasiOptions), and what `flags` say of all else.
    pub fn new(mut wasi: WasiP1Ctx, flags: &Flags) -> Self {
        flags.limit_resources(wasi.ctx().table);
        let http_chunks = HttpChunks {
            buffered: flags.wasi.http_outgoing_body_buffer_chunks.unwrap_or(p2::DEFAULT_OUTGOING_BODY_BUFFER_CHUNKS),
            size: flags.wasi.http_outgoing_body_chunk_size.unwrap_or(p2::DEFAULT_OUTGOING_BODY_CHUNK_SIZE),
        };
        let limits = Limits { guests: flags.limits(), profilers: 0, growing: None };
        Self { wasi, http: flags.http(), http_chunks, limits }
    }

    /// Has the guest keep to its limits.
    pub(super) fn limit(store: &mut Store<Self>) {
        store.limiter(|state| &mut state.limits);
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: self.wasi.ctx().table, hooks: &mut self.http_chunks }
    }
}

/// How much of what a guest sends by HTTP is kept until it is sent.
struct HttpChunks {
    buffered: usize,
    size: usize,
}

impl WasiHttpHooks for HttpChunks {
    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        self.buffered
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        self.size
    }
}

struct Limits {
    guests: StoreLimits,
    /// Instances that are the profiler's and not the guest's.
    profilers: usize,
    /// Is told when linear memory is about to grow, and by how many bytes.
    growing: Option<Box<dyn FnMut(u64) + Send>>,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let may_grow = self.guests.memory_growing(current, desired, maximum)?;
        // Wasmtime refuses more by itself.
        if may_grow
            && maximum.is_none_or(|maximum| desired <= maximum)
            && let Some(growing) = &mut self.growing
        {
            growing(desired.saturating_sub(current) as u64);
        }
        Ok(may_grow)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.guests.memory_grow_failed(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.guests.table_growing(current, desired, maximum)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.guests.table_grow_failed(error)
    }

    fn instances(&self) -> usize {
        self.guests.instances().saturating_add(self.profilers)
    }

    fn tables(&self) -> usize {
        self.guests.tables()
    }

    fn memories(&self) -> usize {
        self.guests.memories()
    }
}

/// Lets an instance that is the profiler's be made in `store`, beside those that the guest may have. To be called before a store is attached, and
/// before it is told that a component has been instantiated in it.
pub fn make_room_for_profiler(store: &mut Store<GuestState>) {
    store.data_mut().limits.profilers += 1;
    // The store asks how many there may be when it is given who says so.
    GuestState::limit(store);
}

/// Has `growing` be told of each time that linear memory is about to grow, and by how many bytes.
pub fn watch_memory(store: &mut Store<GuestState>, growing: impl FnMut(u64) + Send + 'static) {
    store.data_mut().limits.growing = Some(Box::new(growing));
}
