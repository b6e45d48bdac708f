//! Calls a component's functions: `wasi:cli/run`, of WASI 0.3 or 0.2, or one that the user names.

use super::component_check::{PROVIDED, refuse_default_values};
use super::http::component_exports;
use super::invoke::Exit;
use super::link::component_linker;
use super::names::{OWN_HOST, shown};
use super::{Flags, GuestState};
use std::fmt;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::wasm_wave::untyped::UntypedFuncCall;
use wasmtime::component::wasm_wave::wasm::{DisplayFuncResults, WasmFunc};
use wasmtime::component::wit_parser::ItemName;
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre, Val};
use wasmtime::{Engine, Store};
use wasmtime_wasi::{p2, p3};

/// Why a component cannot be run, or its function not be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentError {
    /// It imports what there is not, or otherwise than it is.
    Import {
        /// What it is, in Wasmtime's words.
        error: String,
        /// What there is.
        provided: &'static str,
    },
    /// It imports what there is not.
    Missing {
        /// Interfaces, and functions of those that there are.
        missing: Vec<String>,
        /// What there is.
        provided: &'static str,
        /// What to do about it.
        advice: String,
    },
    /// An option is given that is for core modules.
    Option(
        /// Which, and why it is.
        &'static str,
    ),
    /// It is no command, and no function of it was named.
    NoCommand {
        /// What it exports.
        exported: Vec<String>,
        /// It answers requests.
        is_handler: bool,
    },
    /// It answers no requests, as is asked of it.
    NoHandler(
        /// What it exports.
        Vec<String>,
    ),
    /// What was named is no call in WAVE, or has other parameters than the function: in the parser's words.
    Call(String),
    /// It exports no function of that name.
    NoFunction(String),
    /// Several of its interfaces have such a function: these.
    Ambiguous(Vec<String>),
}

impl fmt::Display for ComponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(message) => f.write_str(message),
            Self::Import { error, provided } => write!(f, "{error} (provided: {provided})"),
            Self::Missing { missing, provided, advice } => {
                let missing = shown(missing);
                write!(f, "it imports what wlprof does not provide: {missing} (provided: {provided}); {advice}")
            }
            Self::NoCommand { exported, is_handler } => {
                let exported = shown(exported);
                write!(f, "the component exports no `wasi:cli/run` and is no command (it exports: {exported}); ")?;
                if *is_handler {
                    f.write_str("it answers HTTP requests: run it with `wlprof serve`")
                } else {
                    write!(
                        f,
                        "call a function of it with --invoke 'NAME(ARGS)', or profile it in its own host ({OWN_HOST})"
                    )
                }
            }
            Self::NoHandler(exported) => write!(
                f,
                "the component exports no `wasi:http` handler (it exports: {}); run a command without `serve`",
                shown(exported)
            ),
            Self::Call(error) => {
                write!(f, "--invoke: {error}; a component's functions are called as in 'name(1, \"two\")'")
            }
            Self::NoFunction(name) => write!(f, "the component exports no function `{name}`; choose one with --invoke"),
            Self::Ambiguous(names) => {
                write!(f, "several interfaces of the component have that function: name one of {}", shown(names))
            }
        }
    }
}

impl std::error::Error for ComponentError {}

/// What of a component is to be called.
enum Callee {
    /// `wasi:cli/run` of WASI 0.3.
    Command3(p3::bindings::CommandIndices),
    /// `wasi:cli/run` of WASI 0.2.
    Command2(p2::bindings::CommandIndices),
    /// A function, with so many results.
    Function { export: ComponentExportIndex, parameters: Vec<Val>, results: usize },
}

/// A component that can be called.
pub struct CallableComponent {
    pre: InstancePre<GuestState>,
    callee: Callee,
}

impl CallableComponent {
    /// Links the component, and finds what is to be called: `invoke`, a call in WAVE, or else what commands export.
    ///
    /// # Errors
    /// [`ComponentError`] says what is in the way.
    pub fn find(
        engine: &Engine,
        component: &Component,
        flags: &Flags,
        invoke: Option<&str>,
    ) -> Result<Self, ComponentError> {
        let import =
            |error: wasmtime::Error| ComponentError::Import { error: format!("{error:#}"), provided: PROVIDED };
        refuse_default_values(flags)?;
        let mut linker = component_linker(engine, flags).map_err(import)?;
        if flags.wasm.unknown_imports_trap == Some(true) {
            linker.define_unknown_imports_as_traps(component).map_err(import)?;
        }
        let pre = linker.instantiate_pre(component).map_err(import)?;
        let callee = match invoke {
            Some(call) => function(engine, component, call)?,
            None => command(&pre, flags).ok_or_else(|| ComponentError::NoCommand {
                exported: component_exports(engine, component),
                is_handler: false,
            })?,
        };
        Ok(Self { pre, callee })
    }

    /// Instantiates it.
    ///
    /// # Errors
    /// What a start function of it ended with, or what it lacks.
    pub async fn instantiate(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Instance> {
        self.pre.instantiate_async(store).await
    }

    /// Calls it in an instance that was made of it.
    pub async fn call(&self, store: &mut Store<GuestState>, instance: &Instance) -> Exit {
        let ended = match &self.callee {
            Callee::Command3(indices) => match indices.load(&mut *store, instance) {
                Ok(command) => {
                    let ran = store.run_concurrent(async |store| command.wasi_cli_run().call_run(store).await);
                    ran.await.and_then(|ran| ran)
                }
                Err(error) => return Exit::NotCallable(error),
            },
            Callee::Command2(indices) => match indices.load(&mut *store, instance) {
                Ok(command) => command.wasi_cli_run().call_run(store).await,
                Err(error) => return Exit::NotCallable(error),
            },
            Callee::Function { export, parameters, results } => {
                let mut results = vec![Val::Bool(false); *results];
                return match call_function(store, instance, *export, parameters, &mut results).await {
                    Ok(()) => Exit::Returned(vec![DisplayFuncResults(&results).to_string()]),
                    Err(error) => Exit::from_error(error),
                };
            }
        };
        match ended {
            Ok(Ok(())) => Exit::Returned(Vec::new()),
            Ok(Err(())) => Exit::Code(1),
            Err(error) => Exit::from_error(error),
        }
    }
}

async fn call_function(
    store: &mut Store<GuestState>,
    instance: &Instance,
    export: ComponentExportIndex,
    parameters: &[Val],
    results: &mut [Val],
) -> wasmtime::Result<()> {
    let function = instance.get_func(&mut *store, export);
    let function = function.ok_or_else(|| wasmtime::format_err!("the component's instance lacks the function"))?;
    if !store.engine().get_concurrency_support() {
        return function.call_async(store, parameters, results).await;
    }
    let called = store.run_concurrent(async |store| function.call_concurrent(store, parameters, results).await);
    called.await.and_then(|called| called)
}

fn command(pre: &InstancePre<GuestState>, flags: &Flags) -> Option<Callee> {
    let command3 = || p3::bindings::CommandIndices::new(pre).ok().map(Callee::Command3);
    let command2 = || p2::bindings::CommandIndices::new(pre).ok().map(Callee::Command2);
    flags.has_p3().then(command3).flatten().or_else(command2)
}

/// Finds the function that `call` calls, a call in WAVE such as `name(1, "two")`: exported by the component itself, by an interface that the
/// call names, or else by one of those that there are.
fn function(engine: &Engine, component: &Component, call: &str) -> Result<Callee, ComponentError> {
    let call_error = |error: &dyn fmt::Display| ComponentError::Call(error.to_string());
    let call = UntypedFuncCall::parse(call).map_err(|error| call_error(&error))?;
    let name = call.item_name().map_err(|error| call_error(&error))?;
    let (export, ty) = exported_function(engine, component, &name)?;
    let parameters = call.to_wasm_params(&WasmFunc::params(&ty).collect::<Vec<_>>());
    let parameters = parameters.map_err(|error| call_error(&error))?;
    Ok(Callee::Function { export, parameters, results: ty.results().len() })
}

fn exported_function(
    engine: &Engine,
    component: &Component,
    name: &ItemName,
) -> Result<(ComponentExportIndex, ComponentFunc), ComponentError> {
    if let Some((ComponentItem::ComponentFunc(ty), export)) = component.get_export(None, name) {
        return Ok((export, ty));
    }
    let text = name.to_string();
    if name.interface.is_some() || name.package.is_some() {
        return Err(ComponentError::NoFunction(text));
    }
    let component_type = component.component_type();
    let mut found: Vec<_> = component_type
        .exports(engine)
        .filter_map(|(interface, _)| {
            let index = component.get_export_index(None, interface)?;
            match component.get_export(Some(&index), &*text)? {
                (ComponentItem::ComponentFunc(ty), export) => Some((interface, export, ty)),
                _ => None,
            }
        })
        .collect();
    if found.len() > 1 {
        let interfaces = found.iter().map(|(interface, ..)| match interface.split_once('@') {
            Some((interface, version)) => format!("{interface}.{text}@{version}"),
            None => format!("{interface}.{text}"),
        });
        return Err(ComponentError::Ambiguous(interfaces.collect()));
    }
    found.pop().map(|(_, export, ty)| (export, ty)).ok_or(ComponentError::NoFunction(text))
}
