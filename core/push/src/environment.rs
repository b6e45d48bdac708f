//! What the environment says of servers, by OpenTelemetry's names and by Pyroscope's.

use crate::headers::Headers;
use crate::target::{Protocol, Target};
use std::path::PathBuf;
use std::time::Duration;

/// The variables of this process, or of a test.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Variables with this beginning are for all signals, and the second for profiles.
const PREFIXES: [&str; 2] = ["OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_EXPORTER_OTLP_"];

/// The variables of this process. What is empty counts as not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A setting of OTLP exporters.
fn otlp(environment: Environment<'_>, name: &str) -> Option<String> {
    PREFIXES.iter().find_map(|prefix| environment(&format!("{prefix}{name}")))
}

/// The address that is meant by `name`: an address itself, or `otlp` or `pyroscope` for that of the environment.
///
/// # Errors
/// What is wrong with it, in words for the user.
pub(crate) fn target(name: &str, environment: Environment<'_>) -> Result<Target, String> {
    match name {
        "otlp" => otlp_target(environment),
        "pyroscope" => {
            let variable = "PYROSCOPE_SERVER_ADDRESS";
            let address = environment(variable).ok_or_else(|| format!("{variable} is not set"))?;
            let scheme = |from: &str, to: &str| address.strip_prefix(from).map(|rest| format!("{to}{rest}"));
            let address = scheme("http://", "pyroscope://").or_else(|| scheme("https://", "pyroscopes://"));
            let address = address.ok_or_else(|| format!("{variable}: expected http:// or https://"))?;
            Target::parse(&address).map_err(|error| format!("{variable}: {error}"))
        }
        address => Target::parse(address),
    }
}

fn otlp_target(environment: Environment<'_>) -> Result<Target, String> {
    let protocol = otlp(environment, "PROTOCOL").unwrap_or_else(|| "http/protobuf".to_owned());
    let is_grpc = match &*protocol {
        "grpc" => true,
        "http/protobuf" => false,
        other => return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL={other}: expected grpc or http/protobuf")),
    };
    let endpoint = otlp(environment, "ENDPOINT");
    let endpoint = endpoint.unwrap_or_else(|| format!("http://localhost:{}", if is_grpc { 4317 } else { 4318 }));
    let (is_tls, rest) = match (endpoint.strip_prefix("http://"), endpoint.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err("OTEL_EXPORTER_OTLP_ENDPOINT: expected http:// or https://".to_owned()),
    };
    let scheme = match (is_grpc, is_tls) {
        (false, false) => "otlp+http",
        (false, true) => "otlp+https",
        (true, false) => "otlp+grpc",
        (true, true) => "otlp+grpcs",
    };
    Target::parse(&format!("{scheme}://{rest}")).map_err(|error| format!("OTEL_EXPORTER_OTLP_ENDPOINT: {error}"))
}

/// The headers that requests for `protocol` are to have.
///
/// # Errors
/// Which variable is wrong, without its value.
pub(crate) fn headers(protocol: Protocol, environment: Environment<'_>) -> Result<Headers, String> {
    let mut headers = Headers::default();
    if protocol.is_otlp() {
        let pairs = otlp(environment, "HEADERS").unwrap_or_default();
        for pair in pairs.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let wrong = || "OTEL_EXPORTER_OTLP_HEADERS: expected NAME=VALUE,...".to_owned();
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            headers.set(name.trim(), &percent_decoded(value.trim())).map_err(|_| wrong())?;
        }
    }
    if protocol == Protocol::Pyroscope {
        if let (Some(user), password) =
            (environment("PYROSCOPE_BASIC_AUTH_USER"), environment("PYROSCOPE_BASIC_AUTH_PASSWORD"))
        {
            headers.set_basic(&user, &password.unwrap_or_default());
        }
        if let Some(tenant) = environment("PYROSCOPE_TENANT_ID") {
            headers.set("X-Scope-OrgID", &tenant).map_err(|_| "PYROSCOPE_TENANT_ID: not a tenant's name")?;
        }
    }
    Ok(headers)
}

/// The file with the certificates of those that may have signed the server's.
pub(crate) fn roots(protocol: Protocol, environment: Environment<'_>) -> Option<PathBuf> {
    let own = protocol.is_otlp().then(|| otlp(environment, "CERTIFICATE")).flatten();
    own.or_else(|| environment("SSL_CERT_FILE")).map(PathBuf::from)
}

/// How long a request may take, if that is said.
pub(crate) fn timeout(protocol: Protocol, environment: Environment<'_>) -> Option<Duration> {
    let text = protocol.is_otlp().then(|| otlp(environment, "TIMEOUT")).flatten()?;
    text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// Returns whether OpenTelemetry is to do nothing in this process.
pub(crate) fn is_disabled(protocol: Protocol, environment: Environment<'_>) -> bool {
    protocol.is_otlp() && environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn addresses_are_those_of_the_environment() {
        let shown = |name, variables: &[_]| target(name, &of(variables)).map(|target| target.to_string());
        assert_eq!(shown("otlp", &[]).unwrap(), "otlp+http://localhost:4318");
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(shown("otlp", &[grpc]).unwrap(), "otlp+grpc://localhost:4317");
        let of_profiles = ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "https://c:1/x");
        let of_all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://d");
        assert_eq!(shown("otlp", &[of_all, of_profiles]).unwrap(), "otlp+https://c:1/x");
        assert!(shown("pyroscope", &[]).unwrap_err().contains("PYROSCOPE_SERVER_ADDRESS is not set"));
        let address = ("PYROSCOPE_SERVER_ADDRESS", "http://p:4040");
        assert_eq!(shown("pyroscope", &[address]).unwrap(), "pyroscope://p:4040");
        let wrong = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
        assert!(shown("otlp", &[wrong]).unwrap_err().contains("http/protobuf"));
    }

    #[test]
    fn errors_say_no_credential() {
        let broken = [("OTEL_EXPORTER_OTLP_HEADERS", "secret")];
        let error = headers(Protocol::OtlpHttp, &of(&broken)).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
        let whole = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20x, a=b")];
        let headers = headers(Protocol::OtlpGrpc, &of(&whole)).unwrap();
        assert_eq!(headers.get("authorization").as_deref(), Some("Basic x"));
        assert!(!format!("{headers:?}").contains("Basic"), "{headers:?}");
    }
}
