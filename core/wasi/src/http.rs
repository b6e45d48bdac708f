//! Components that answer requests: `wasi:http/handler` of WASI 0.3, or `wasi:http/incoming-handler` of 0.2.

use super::component::ComponentError;
use super::component_check::PROVIDED_TO_HANDLERS;
use super::link::handler_linker;
use super::{Flags, GuestState};
use wasmtime::component::Component;
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::handler::{Proxy, ProxyPre};
use wasmtime_wasi_http::{p2, p3};

/// A component that answers requests, linked.
pub struct HttpHandler(ProxyPre<GuestState>);

impl HttpHandler {
    /// Links the component.
    ///
    /// # Errors
    /// [`ComponentError`] says what is in the way.
    pub fn find(engine: &Engine, component: &Component, flags: &Flags) -> Result<Self, ComponentError> {
        let import = |error: wasmtime::Error| ComponentError::Import {
            error: format!("{error:#}"),
            provided: PROVIDED_TO_HANDLERS,
        };
        let mut linker = handler_linker(engine, flags).map_err(import)?;
        if flags.wasm.unknown_imports_trap == Some(true) {
            linker.define_unknown_imports_as_traps(component).map_err(import)?;
        }
        let pre = linker.instantiate_pre(component).map_err(import)?;
        if let Ok(service) = p3::bindings::ServicePre::new(pre.clone()) {
            return Ok(Self(ProxyPre::P3(service)));
        }
        let proxy = p2::bindings::ProxyPre::new(pre);
        proxy
            .map(|proxy| Self(ProxyPre::P2(proxy)))
            .map_err(|_| ComponentError::NoHandler(component_exports(engine, component)))
    }

    /// Whether it is one of WASI 0.3, of which an instance takes many requests, several at a time.
    pub fn is_concurrent(&self) -> bool {
        matches!(self.0, ProxyPre::P3(_))
    }

    /// Instantiates it.
    ///
    /// # Errors
    /// What a start function of it ended with, or what it lacks.
    pub async fn instantiate(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Proxy> {
        self.0.instantiate_async(store).await
    }
}

/// What a component exports.
pub(super) fn component_exports(engine: &Engine, component: &Component) -> Vec<String> {
    component.component_type().exports(engine).map(|(name, _)| name.to_owned()).collect()
}
