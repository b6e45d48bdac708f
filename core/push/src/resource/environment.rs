//! Attributes that environment variables give: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` and `PYROSCOPE_APPLICATION_NAME`.

use super::SERVICE_NAME;
use std::{error, fmt};

/// The variables that are read. The others may hold secrets.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) const VARIABLES: [&str; 3] = [OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, PYROSCOPE_APPLICATION_NAME];
const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const PYROSCOPE_APPLICATION_NAME: &str = "PYROSCOPE_APPLICATION_NAME";

/// The reason why `OTEL_RESOURCE_ATTRIBUTES` is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributesError {
    piece: String,
    reason: &'static str,
}

impl fmt::Display for AttributesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { piece, reason } = self;
        write!(f, "{OTEL_RESOURCE_ATTRIBUTES} is ignored: `{piece}` {reason}; it needs the form name=value,name=value")
    }
}

impl error::Error for AttributesError {}

/// Returns the attributes of an environment in order. A name may come twice; the last counts.
pub(super) fn attributes(env: &dyn Fn(&str) -> Option<String>) -> (Vec<(String, String)>, Option<AttributesError>) {
    // To OpenTelemetry an empty variable is as one that is not set.
    let variable = |name| env(name).filter(|value| !value.is_empty());
    let of_name = |name| variable(name).map(|value| (SERVICE_NAME.to_owned(), value));
    let (listed, problem) = match parse(&variable(OTEL_RESOURCE_ATTRIBUTES).unwrap_or_default()) {
        Ok(listed) => (listed, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let first = of_name(PYROSCOPE_APPLICATION_NAME).into_iter();
    (first.chain(listed).chain(of_name(OTEL_SERVICE_NAME)).collect(), problem)
}

/// Parses `name=value,name=value`. Commas and percent signs in it are percent-encoded.
fn parse(text: &str) -> Result<Vec<(String, String)>, AttributesError> {
    let pieces = text.split(',').map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(|piece| attribute(piece).map_err(|reason| AttributesError { piece: piece.to_owned(), reason })).collect()
}

fn attribute(piece: &str) -> Result<(String, String), &'static str> {
    let (name, value) = piece.split_once('=').ok_or("has no equals sign")?;
    let name = decoded(name.trim())?;
    if name.is_empty() { Err("has no name") } else { Ok((name, decoded(value.trim())?)) }
}

/// Text without percent signs, or as it is if it is none such.
pub(crate) fn decoded_lossy(text: &str) -> String {
    decoded(text).unwrap_or_else(|_| text.to_owned())
}

fn decoded(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            hex_byte(rest.next(), rest.next()).ok_or("has a percent sign without two hexadecimal digits")?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 when decoded")
}

fn hex_byte(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service_name(variables: &[(&str, &str)]) -> Option<String> {
        let env = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        attributes(&env).0.into_iter().rfind(|(name, _)| name == SERVICE_NAME).map(|(_, value)| value)
    }

    #[test]
    fn the_name_of_the_service_has_three_sources() {
        let mut variables = vec![("PYROSCOPE_APPLICATION_NAME", "third")];
        assert_eq!(service_name(&[]), None);
        assert_eq!(service_name(&variables).as_deref(), Some("third"));
        variables.push(("OTEL_RESOURCE_ATTRIBUTES", "service.name=second"));
        assert_eq!(service_name(&variables).as_deref(), Some("second"));
        variables.push(("OTEL_SERVICE_NAME", "first"));
        assert_eq!(service_name(&variables).as_deref(), Some("first"));
        assert_eq!(service_name(&[("OTEL_SERVICE_NAME", "")]), None);
    }

    #[test]
    fn values_are_decoded() {
        let all = parse(" a = b ,c=%2C%3d%25 caf%C3%A9,d=,e=x=y,").unwrap();
        let all: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(all, [("a", "b"), ("c", ",=% café"), ("d", ""), ("e", "x=y")]);
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn one_malformed_attribute_spoils_all() {
        for text in ["a", "a=b,=c", "a=%", "a=%4", "a=%+1", "a=%zz", "a=%ff", "a=b,%ff=c"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let text = parse("x=1,y").unwrap_err().to_string();
        assert_eq!(
            text,
            "OTEL_RESOURCE_ATTRIBUTES is ignored: `y` has no equals sign; it needs the form name=value,name=value"
        );
    }
}
