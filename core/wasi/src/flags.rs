//! What the options `-S` and `-W` of `wasmtime run` change in a guest's world, by the crate that defines these options.

use wasmtime::{Store, StoreLimits, StoreLimitsBuilder};
use wasmtime_cli_flags::{WasiOptions as Wasi, WasmOptions as Wasm};
use wasmtime_wasi::{ResourceTable, WasiCtxBuilder};
use wasmtime_wasi_http::WasiHttpCtx;

/// The options that are about what a guest may do. Those that change what it is compiled to are in the engine's configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Those of `-S`: which of WASI's interfaces there are, and what they allow.
    pub wasi: Wasi,
    /// Those of `-W`: limits, and what becomes of imports that there are not.
    pub wasm: Wasm,
}

impl Flags {
    /// Whether the interfaces of WASI for programs are there at all: they are, if nothing is said of it.
    pub(super) fn has_cli(&self) -> Option<bool> {
        self.wasi.cli.or(self.wasi.common)
    }

    /// Whether those of WASI 0.3 are.
    pub(super) fn has_p3(&self) -> bool {
        self.wasi.p3 != Some(false) && self.wasm.concurrency_support != Some(false)
    }

    /// Whether a module's import, a function or something else, is made up if there is no such thing.
    pub fn makes_up(&self, is_function: bool) -> bool {
        self.wasm.unknown_imports_default == Some(true) || is_function && self.wasm.unknown_imports_trap == Some(true)
    }

    /// Says what the guest may do beyond its folders.
    pub(super) fn configure(&self, builder: &mut WasiCtxBuilder) {
        let Wasi { cwd, inherit_network, allow_ip_name_lookup, tcp, udp, max_random_size, .. } = &self.wasi;
        cwd.iter().for_each(|cwd| _ = builder.initial_cwd(cwd));
        if *inherit_network == Some(true) {
            builder.inherit_network().allow_tcp(true).allow_udp(true);
        }
        allow_ip_name_lookup.iter().for_each(|&enable| _ = builder.allow_ip_name_lookup(enable));
        tcp.iter().for_each(|&enable| _ = builder.allow_tcp(enable));
        udp.iter().for_each(|&enable| _ = builder.allow_udp(enable));
        max_random_size.iter().for_each(|&size| _ = builder.max_random_size(size));
    }

    /// Has the guest's standard streams lead to those of this process.
    pub(super) fn inherit_streams(&self, builder: &mut WasiCtxBuilder) {
        if self.wasi.inherit_stdin != Some(false) {
            builder.inherit_stdin();
        }
        if self.wasi.inherit_stdout != Some(false) {
            builder.inherit_stdout();
        }
        if self.wasi.inherit_stderr != Some(false) {
            builder.inherit_stderr();
        }
    }

    pub(super) fn http(&self) -> WasiHttpCtx {
        let mut http = WasiHttpCtx::new();
        self.wasi.max_http_fields_size.iter().for_each(|&limit| http.set_field_size_limit(limit));
        http
    }

    pub(super) fn limit_resources(&self, table: &mut ResourceTable) {
        self.wasi.max_resources.iter().for_each(|&max| table.set_max_capacity(max));
    }

    /// Sets what the store itself counts.
    ///
    /// # Errors
    /// If the engine was not configured to count fuel.
    pub(super) fn limit_store<T: Send + 'static>(&self, store: &mut Store<T>) -> wasmtime::Result<()> {
        self.wasi.hostcall_fuel.iter().for_each(|&fuel| store.set_hostcall_fuel(fuel));
        self.wasi.max_component_handles.iter().for_each(|&max| store.set_max_component_handles(max));
        if let (Some(max), Some(table)) = (self.wasi.max_resources, store.concurrent_resource_table()) {
            table.set_max_capacity(max);
        }
        self.wasm.fuel.map_or(Ok(()), |fuel| store.set_fuel(fuel))
    }

    /// What the guest's memories, tables and instances may come to. `profilers` are instances that are none of the guest's.
    pub(super) fn limits(&self) -> StoreLimits {
        let Wasm { max_memory_size, max_table_elements, max_instances, max_tables, max_memories, .. } = self.wasm;
        let mut limits = StoreLimitsBuilder::new();
        if let Some(max) = max_memory_size {
            limits = limits.memory_size(max);
        }
        if let Some(max) = max_table_elements {
            limits = limits.table_elements(max);
        }
        if let Some(max) = max_instances {
            limits = limits.instances(max);
        }
        if let Some(max) = max_tables {
            limits = limits.tables(max);
        }
        if let Some(max) = max_memories {
            limits = limits.memories(max);
        }
        limits.trap_on_grow_failure(self.wasm.trap_on_grow_failure == Some(true)).build()
    }
}
