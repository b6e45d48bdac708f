//! Calls a module's functions, and tells how a guest ended.

use std::fmt;
use wasmtime::{AsContextMut, Instance, Trap, Val, ValType};
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

/// What is called if no function is named: the first of these that a module exports.
pub const MAIN_FUNCTIONS: [&str; 2] = ["", "_start"];

/// Calls `function`, or the main function if none is named, with `arguments` parsed as the parameters' types. A module
/// without a main function has done what it does when it is instantiated and initialized.
pub fn call(mut store: impl AsContextMut, instance: &Instance, function: Option<&str>, arguments: &[String]) -> Exit {
    // `wasmtime run` calls it whatever else there is, and once more if it is the function that is named.
    if let Some(initialize) = instance.get_func(&mut store, "_initialize")
        && let Err(error) = initialize.call(&mut store, &[], &mut [])
    {
        return Exit::from_error(error);
    }
    let func = match function {
        Some(name) => match instance.get_func(&mut store, name) {
            Some(func) => func,
            None => return Exit::NotCallable(wasmtime::format_err!("the module exports no function `{name}`")),
        },
        None => match MAIN_FUNCTIONS.iter().find_map(|name| instance.get_func(&mut store, name)) {
            Some(func) => func,
            None => return Exit::Returned(Vec::new()),
        },
    };
    let ty = func.ty(&store);
    let types = ty.params().map(|ty| if ty.is_ref() { Err(ty.to_string()) } else { Ok(ty) });
    let parameters = match parse_arguments(types, arguments) {
        Ok(parameters) => parameters,
        Err(error) => return Exit::NotCallable(error.into()),
    };
    let mut results = vec![Val::I32(0); ty.results().len()];
    match func.call(&mut store, &parameters, &mut results) {
        Ok(()) => Exit::Returned(results.iter().map(show).collect()),
        Err(error) => Exit::from_error(error),
    }
}

/// Why a function cannot be called with the arguments that the user gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentError {
    /// There are too few.
    TooFew {
        /// The types of the function's parameters.
        parameters: Vec<String>,
        /// How many arguments there are.
        given: usize,
    },
    /// A parameter is of a type that has no text: this one.
    Type(String),
    /// An argument is no value of its parameter's type.
    Value {
        /// The argument.
        argument: String,
        /// The type.
        parameter: String,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { parameters, given } => {
                let (count, types) = (parameters.len(), parameters.join(" "));
                write!(f, "the function takes {count} arguments ({types}), {given} were given; they come after GUEST")
            }
            Self::Type(ty) => {
                write!(f, "arguments of type {ty} cannot be given on the command line (supported: i32, i64, f32, f64)")
            }
            Self::Value { argument, parameter } => write!(f, "argument {argument:?} is no {parameter}"),
        }
    }
}

impl std::error::Error for ArgumentError {}

/// Parses as many arguments as there are parameters. Others are the guest's own, which WASI gives it all the same. A
/// parameter that is an `Err` is of the type it names, for which there is no argument.
pub fn parse_arguments(
    parameters: impl Iterator<Item = Result<ValType, String>>,
    arguments: &[String],
) -> Result<Vec<Val>, ArgumentError> {
    let parameters: Vec<_> = parameters.collect();
    if parameters.len() > arguments.len() {
        let name = |ty: Result<ValType, String>| ty.map_or_else(|name| name, |ty| ty.to_string());
        let parameters = parameters.into_iter().map(name).collect();
        return Err(ArgumentError::TooFew { parameters, given: arguments.len() });
    }
    let parse = |(ty, text): (Result<ValType, String>, &String)| {
        let ty = ty.map_err(ArgumentError::Type)?;
        let value = match ty {
            ValType::I32 => integer(text, i32::from_str_radix).map(Val::I32),
            ValType::I64 => integer(text, i64::from_str_radix).map(Val::I64),
            ValType::F32 => text.parse::<f32>().ok().map(|value| Val::F32(value.to_bits())),
            ValType::F64 => text.parse::<f64>().ok().map(|value| Val::F64(value.to_bits())),
            other => return Err(ArgumentError::Type(other.to_string())),
        };
        value.ok_or_else(|| ArgumentError::Value { argument: text.clone(), parameter: ty.to_string() })
    };
    parameters.into_iter().zip(arguments).map(parse).collect()
}

/// A signed integer, decimal or after `0x` hexadecimal.
fn integer<T, E>(text: &str, parse: fn(&str, u32) -> Result<T, E>) -> Option<T> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => parse(digits, 16).ok(),
        None => parse(text, 10).ok(),
    }
}

/// Shows a result as `wasmtime run --invoke` prints it.
fn show(value: &Val) -> String {
    let reference = |name: &str, is_null: bool| if is_null { format!("<null {name}>") } else { format!("<{name}>") };
    match value {
        Val::I32(v) => v.to_string(),
        Val::I64(v) => v.to_string(),
        Val::F32(v) => f32::from_bits(*v).to_string(),
        Val::F64(v) => f64::from_bits(*v).to_string(),
        Val::V128(v) => v.as_u128().to_string(),
        Val::ExternRef(v) => reference("externref", v.is_none()),
        Val::FuncRef(v) => reference("funcref", v.is_none()),
        Val::AnyRef(v) => reference("anyref", v.is_none()),
        Val::ExnRef(v) => reference("exnref", v.is_none()),
        Val::ContRef(v) => reference("contref", v.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_signed_and_decimal_or_hexadecimal() {
        let parse = |text| integer(text, i32::from_str_radix);
        for (text, value) in [("-7", -7), ("+7", 7), ("0xff", 255), ("0XFF", 255), ("0x-1", -1)] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["seven", "", "0x", "-0x1", " 7", "2147483648", "0xffffffff"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn exit_codes_are_the_guests() {
        assert_eq!(Exit::Returned(Vec::new()).code(), Some(0));
        assert_eq!(Exit::Code(3).code(), Some(3));
        assert_eq!(Exit::Trapped(Trap::UnreachableCodeReached.into()).code(), Some(134));
    }
}
