//! Calls the guest and tells how it ended.

use wasmtime::{AsContextMut, Func, Instance, Trap, Val, ValType};
use wasmtime_wasi::I32Exit;

/// How a guest ended.
#[derive(Debug)]
pub enum Exit {
    /// It returned from its main function, with these results if it was `--invoke`d.
    Returned(Vec<String>),
    /// It called `proc_exit`.
    Code(i32),
    /// It trapped.
    Trapped(wasmtime::Error),
    /// It could not be called: no such function, wrong arguments, an import missing.
    NotCallable(wasmtime::Error),
}

impl Exit {
    /// Tells how a failed call ended.
    pub fn from_error(error: wasmtime::Error) -> Self {
        if let Some(exit) = error.downcast_ref::<I32Exit>() { Self::Code(exit.0) } else { Self::Trapped(error) }
    }

    /// The process's exit code: the guest's own, 134 for a trap as `wasmtime run` has it (128 + SIGABRT).
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Returned(_) => Some(0),
            // Exit codes are eight bits on Unix; `wasmtime run` gives 1 for those it cannot pass on.
            Self::Code(code) if (0..126).contains(code) => Some(*code),
            Self::Code(_) => Some(1),
            Self::Trapped(error) if error.is::<Trap>() => Some(134),
            Self::Trapped(_) => Some(1),
            Self::NotCallable(_) => None,
        }
    }
}

/// Calls `function`, or `_start`, or the default export, with `arguments` parsed as the parameters' types.
pub fn call(mut store: impl AsContextMut, instance: &Instance, function: Option<&str>, arguments: &[String]) -> Exit {
    let found = match function {
        Some(name) => instance.get_func(&mut store, name).ok_or_else(|| no_such_function(&mut store, instance, name)),
        None => instance
            .get_func(&mut store, "_start")
            .or_else(|| instance.get_func(&mut store, ""))
            .ok_or_else(|| no_such_function(&mut store, instance, "_start")),
    };
    let prepared = found.and_then(|func| {
        // A main function's arguments come through WASI.
        let own = if function.is_some() { arguments } else { &[] };
        let parameters = parse_arguments(store.as_context_mut(), &func, own)?;
        Ok((func, parameters))
    });
    let (func, parameters) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Exit::NotCallable(error),
    };
    // A reactor is to be initialized before any other of its exports is called, as `wasmtime run --invoke` does.
    if function.is_some_and(|name| name != "_initialize")
        && let Some(initialize) = instance.get_func(&mut store, "_initialize")
        && let Err(error) = initialize.call(&mut store, &[], &mut [])
    {
        return Exit::from_error(error);
    }
    let mut results = vec![Val::I32(0); func.ty(&store).results().len()];
    match func.call(&mut store, &parameters, &mut results) {
        Ok(()) => Exit::Returned(results.iter().map(show).collect()),
        Err(error) => Exit::from_error(error),
    }
}

fn no_such_function(mut store: impl AsContextMut, instance: &Instance, name: &str) -> wasmtime::Error {
    let exports: Vec<String> = instance
        .exports(&mut store)
        .filter_map(|e| {
            let name = e.name().to_owned();
            e.into_func().map(|_| name)
        })
        .collect();
    let names = if exports.is_empty() { "none".to_owned() } else { exports.join(", ") };
    wasmtime::format_err!(
        "the module exports no function `{name}` (functions it exports: {names}); choose one with --invoke NAME"
    )
}

fn parse_arguments(store: impl wasmtime::AsContext, func: &Func, arguments: &[String]) -> wasmtime::Result<Vec<Val>> {
    let ty = func.ty(&store);
    if ty.params().len() != arguments.len() {
        let types: Vec<String> = ty.params().map(|ty| ty.to_string()).collect();
        wasmtime::bail!(
            "the function takes {} arguments ({}), {} were given; use --invoke NAME GUEST ARGS",
            types.len(),
            types.join(" "),
            arguments.len()
        );
    }
    ty.params()
        .zip(arguments)
        .map(|(ty, text)| {
            let value = match ty {
                ValType::I32 => parse_integer(text)
                    .and_then(|v| i32::try_from(v).or(u32::try_from(v).map(|v| v as i32)).ok())
                    .map(Val::I32),
                ValType::I64 => parse_integer(text)
                    .and_then(|v| i64::try_from(v).or(u64::try_from(v).map(|v| v as i64)).ok())
                    .map(Val::I64),
                ValType::F32 => text.parse::<f32>().ok().map(|v| Val::F32(v.to_bits())),
                ValType::F64 => text.parse::<f64>().ok().map(|v| Val::F64(v.to_bits())),
                other => wasmtime::bail!("arguments of type {other} cannot be given on the command line"),
            };
            value.ok_or_else(|| wasmtime::format_err!("argument {text:?} is no {ty}"))
        })
        .collect()
}

/// Parses a decimal or `0x` integer.
fn parse_integer(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Shows a result as `wasmtime run --invoke` prints it.
fn show(value: &Val) -> String {
    match value {
        Val::I32(v) => v.to_string(),
        Val::I64(v) => v.to_string(),
        Val::F32(v) => f32::from_bits(*v).to_string(),
        Val::F64(v) => f64::from_bits(*v).to_string(),
        Val::V128(v) => v.as_u128().to_string(),
        other => format!("<{}>", if matches!(other, Val::ExternRef(_)) { "externref" } else { "reference" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_decimal_or_hexadecimal() {
        assert_eq!(parse_integer("-7"), Some(-7));
        assert_eq!(parse_integer("0xff"), Some(255));
        assert_eq!(parse_integer("seven"), None);
    }

    #[test]
    fn exit_codes_are_the_guests() {
        assert_eq!(Exit::Returned(Vec::new()).code(), Some(0));
        assert_eq!(Exit::Code(3).code(), Some(3));
        assert_eq!(Exit::Trapped(Trap::UnreachableCodeReached.into()).code(), Some(134));
    }
}
