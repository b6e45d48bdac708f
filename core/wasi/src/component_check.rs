//! Finds what keeps a component from being run, before it is compiled: compiling a large one takes minutes.
//!
//! Names are compared, and types are left to Wasmtime, which compares them when the component is compiled.

use super::Flags;
use super::component::{CallableComponent, ComponentError};
use super::http::HttpHandler;
use super::link::{LinkerItems, component_linker, handler_linker};
use super::names::OWN_HOST;
use super::state::GuestState;
use wasmtime::Engine;
use wasmtime::component::Linker;
use wasmtime::component::wasm_wave::untyped::UntypedFuncCall;

/// What a component imports and exports, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentNames {
    /// Interfaces, each with its functions. Functions that are imported by themselves have no interface.
    pub imports: Vec<(Option<String>, Vec<String>)>,
    /// Interfaces and whatever else is exported.
    pub exports: Vec<String>,
}

impl ComponentNames {
    fn exports_any(&self, interfaces: &[&str]) -> bool {
        let is_one = |name: &String| {
            let interface = name.split_once('@').map_or(&**name, |(interface, _)| interface);
            interfaces.contains(&interface)
        };
        self.exports.iter().any(is_one)
    }

    fn is_command(&self) -> bool {
        self.exports_any(&["wasi:cli/run"])
    }

    fn is_handler(&self) -> bool {
        self.exports_any(&["wasi:http/incoming-handler", "wasi:http/handler"])
    }

    /// The imports that `linker` lacks: interfaces, or functions of those that it has.
    fn missing(&self, linker: &Linker<GuestState>) -> Vec<String> {
        let (mut missing, mut provided) = (Vec::new(), LinkerItems::by(linker));
        for (interface, functions) in &self.imports {
            let interface = interface.as_deref();
            let lacked = functions.iter().filter(|function| !provided.has(interface, function));
            let lacked: Vec<&String> = lacked.collect();
            match interface {
                Some(interface) if !lacked.is_empty() && lacked.len() == functions.len() => {
                    missing.push(interface.to_owned());
                }
                Some(interface) => missing.extend(lacked.iter().map(|function| format!("{interface}#{function}"))),
                None => missing.extend(lacked.into_iter().cloned()),
            }
        }
        missing
    }
}

impl CallableComponent {
    /// Looks by the names whether [`CallableComponent::find`] can succeed.
    ///
    /// # Errors
    /// [`ComponentError`] says what is in the way.
    pub fn check(
        engine: &Engine,
        names: &ComponentNames,
        flags: &Flags,
        invoke: Option<&str>,
    ) -> Result<(), ComponentError> {
        let no_command =
            || ComponentError::NoCommand { exported: names.exports.clone(), is_handler: names.is_handler() };
        if invoke.is_none() && !names.is_command() && names.is_handler() {
            return Err(no_command());
        }
        refuse_default_values(flags)?;
        check_imports(names, component_linker(engine, flags), flags, PROVIDED, |missing| {
            let is_http = flags.wasi.http != Some(false) && missing.iter().all(|name| name.starts_with("wasi:http/"));
            is_http.then_some("add -S http")
        })?;
        match invoke {
            Some(call) => {
                UntypedFuncCall::parse(call).map(|_| ()).map_err(|error| ComponentError::Call(error.to_string()))
            }
            None if names.is_command() => Ok(()),
            None => Err(no_command()),
        }
    }
}

impl HttpHandler {
    /// Looks by the names whether [`HttpHandler::find`] can succeed.
    ///
    /// # Errors
    /// [`ComponentError`] says what is in the way.
    pub fn check(engine: &Engine, names: &ComponentNames, flags: &Flags) -> Result<(), ComponentError> {
        if !names.is_handler() {
            return Err(ComponentError::NoHandler(names.exports.clone()));
        }
        check_imports(names, handler_linker(engine, flags), flags, PROVIDED_TO_HANDLERS, |missing| {
            let packages = ["cli", "clocks", "filesystem", "io", "random", "sockets"];
            let is_commands = |name: &String| {
                packages.iter().any(|package| name.strip_prefix("wasi:").is_some_and(|name| is_of(name, package)))
            };
            (flags.has_cli().is_none() && missing.iter().all(is_commands)).then_some("add -S cli")
        })
    }
}

fn is_of(name: &str, package: &str) -> bool {
    name.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'))
}

/// What there is for components that are called.
pub(super) const PROVIDED: &str = "WASI 0.2 and 0.3, as for commands";
/// What there is for components that answer requests.
pub(super) const PROVIDED_TO_HANDLERS: &str = "what `wasi:http` brings; all that commands have with -S cli";

/// Refuses `-W unknown-imports-default`.
pub(super) fn refuse_default_values(flags: &Flags) -> Result<(), ComponentError> {
    const MESSAGE: &str = "-W unknown-imports-default: what a component imports has types of its own, for which nothing is made up; \
                           -W unknown-imports-trap works for components";
    if flags.wasm.unknown_imports_default == Some(true) { Err(ComponentError::Option(MESSAGE)) } else { Ok(()) }
}

fn check_imports(
    names: &ComponentNames,
    linker: wasmtime::Result<Linker<GuestState>>,
    flags: &Flags,
    provided: &'static str,
    option: impl FnOnce(&[String]) -> Option<&'static str>,
) -> Result<(), ComponentError> {
    if flags.wasm.unknown_imports_trap == Some(true) {
        return Ok(());
    }
    let linker = linker.map_err(|error| ComponentError::Import { error: format!("{error:#}"), provided })?;
    let missing = names.missing(&linker);
    if missing.is_empty() {
        return Ok(());
    }
    let advice = option(&missing).map_or_else(
        || {
            format!(
                "compose it with components that export these (`wac plug`), have functions trap when they are called \
                 (-W unknown-imports-trap), or profile it in its own host ({OWN_HOST})"
            )
        },
        str::to_owned,
    );
    Err(ComponentError::Missing { missing, provided, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(interface: &str, functions: &[&str], exports: &[&str]) -> ComponentNames {
        let functions = functions.iter().map(|&name| name.to_owned()).collect();
        ComponentNames {
            imports: vec![(Some(interface.to_owned()), functions)],
            exports: exports.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn missing(interface: &str, functions: &[&str]) -> Vec<String> {
        let checked = CallableComponent::check(
            &Engine::default(),
            &names(interface, functions, &["wasi:cli/run@0.2.0"]),
            &Flags::default(),
            None,
        );
        match checked {
            Ok(()) => Vec::new(),
            Err(ComponentError::Missing { missing, .. }) => missing,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn releases_of_wasi_that_fit_are_known_and_what_is_missing_is_named() {
        for version in ["0.2.0", "0.2.3", "0.2.99"] {
            let interface = format!("wasi:cli/environment@{version}");
            assert!(missing(&interface, &["get-environment"]).is_empty(), "{version}");
            assert_eq!(missing(&interface, &["get-environment", "set"]), [format!("{interface}#set")]);
        }
        for interface in ["wasi:cli/environment@0.4.0", "wasi:cli/environment", "acme:shop/log@1.0.0"] {
            assert_eq!(missing(interface, &["get-environment"]), [interface]);
        }
        // It has types, which nobody provides.
        assert!(missing("acme:shop/types@1.0.0", &[]).is_empty());
    }

    #[test]
    fn advice_fits_what_the_component_is() {
        let engine = Engine::default();
        let flags = Flags::default();
        let run =
            |names: &ComponentNames| CallableComponent::check(&engine, names, &flags, None).unwrap_err().to_string();
        let serve = |names: &ComponentNames| HttpHandler::check(&engine, names, &flags).unwrap_err().to_string();
        let http = ("wasi:http/types@0.2.0", &["http-error-code"][..]);
        let handler = ["wasi:http/incoming-handler@0.2.0"];
        let command = ["wasi:cli/run@0.2.0"];
        assert!(run(&names(http.0, http.1, &handler)).contains("`wlprof serve`"));
        assert!(run(&names(http.0, http.1, &command)).ends_with("add -S http"));
        assert!(run(&names("acme:shop/log", &["log"], &command)).contains("docs/embedding.md"));
        assert!(!run(&names("acme:shop/log", &[], &["greet"])).contains("wlprof serve"));
        assert!(
            serve(&names("wasi:filesystem/types@0.2.0", &["filesystem-error-code"], &handler)).ends_with("add -S cli")
        );
        assert!(serve(&names(http.0, http.1, &command)).contains("without `serve`"));
        assert!(HttpHandler::check(&engine, &names(http.0, http.1, &handler), &flags).is_ok());
    }
}
