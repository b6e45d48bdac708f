//! What the environment says of servers, by OpenTelemetry's names and by Pyroscope's.

use crate::headers::Headers;
use crate::resource::decoded_lossy;
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
        "pyroscope" => pyroscope_target(environment).unwrap_or_else(|| Err(format!("{PYROSCOPE_ADDRESS} is not set"))),
        address => Target::parse(address),
    }
}

const PYROSCOPE_ADDRESS: &str = "PYROSCOPE_SERVER_ADDRESS";

/// The server that Pyroscope's own clients push to, if there is one.
fn pyroscope_target(environment: Environment<'_>) -> Option<Result<Target, String>> {
    let address = environment(PYROSCOPE_ADDRESS)?;
    let read = web_address(&address).and_then(|(is_tls, rest)| {
        Target::parse(&format!("{}://{rest}", if is_tls { "pyroscopes" } else { "pyroscope" }))
    });
    Some(read.map_err(|error| format!("{PYROSCOPE_ADDRESS}: {error}")))
}

/// Reads an address of HTTP: whether it is by TLS, and the host with its port, and what is behind.
fn web_address(text: &str) -> Result<(bool, String), String> {
    let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err("expected http:// or https://".to_owned()),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // That of an address of IPv6 stands behind its bracket.
    let has_port = host.rsplit(']').next().is_some_and(|host| host.contains(':'));
    let port = match (has_port, is_tls) {
        (true, _) => "",
        (false, false) => ":80",
        (false, true) => ":443",
    };
    Ok((is_tls, format!("{host}{port}{path}")))
}

fn otlp_target(environment: Environment<'_>) -> Result<Target, String> {
    let protocol = otlp(environment, "PROTOCOL").unwrap_or_else(|| "http/protobuf".to_owned());
    let is_grpc = match &*protocol {
        "grpc" => true,
        "http/protobuf" => false,
        other => return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL={other}: expected grpc or http/protobuf")),
    };
    let own = environment(&format!("{}ENDPOINT", PREFIXES[0]));
    let endpoint = own.clone().or_else(|| environment(&format!("{}ENDPOINT", PREFIXES[1])));
    let endpoint = endpoint.unwrap_or_else(|| format!("http://localhost:{}", if is_grpc { 4317 } else { 4318 }));
    let failed = |error: String| format!("OTEL_EXPORTER_OTLP_ENDPOINT: {error}");
    let (is_tls, rest) = web_address(&endpoint).map_err(failed)?;
    let scheme = match (is_grpc, is_tls) {
        (false, false) => "otlp+http",
        (false, true) => "otlp+https",
        (true, false) => "otlp+grpc",
        (true, true) => "otlp+grpcs",
    };
    let target = Target::parse(&format!("{scheme}://{rest}")).map_err(failed)?;
    // That of one signal is used as it is.
    Ok(if own.is_some() && !is_grpc { target.at_its_own_path() } else { target })
}

/// Returns whether the environment names another server for such requests: what it has of credentials is for that one.
fn is_of_another_server(target: &Target, environment: Environment<'_>) -> bool {
    let address = match target.protocol() {
        Protocol::Pyroscope => environment(PYROSCOPE_ADDRESS),
        Protocol::OtlpHttp | Protocol::OtlpGrpc => otlp(environment, "ENDPOINT"),
        Protocol::Parca => None,
    };
    address.is_some_and(|address| {
        let named = web_address(&address).and_then(|(_, rest)| Target::parse(&format!("otlp+http://{rest}")));
        // One that cannot be read names some other server.
        named.map_or(true, |named| named.host != target.host)
    })
}

/// The headers that requests to `target` are to have, if the environment has them for it.
///
/// # Errors
/// Which variable is wrong, without its value.
pub(crate) fn headers(target: &Target, environment: Environment<'_>) -> Result<Headers, String> {
    let mut headers = Headers::default();
    if is_of_another_server(target, environment) {
        return Ok(headers);
    }
    let protocol = target.protocol();
    if protocol.is_otlp() {
        let pairs = otlp(environment, "HEADERS").unwrap_or_default();
        for pair in pairs.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let wrong = || "OTEL_EXPORTER_OTLP_HEADERS: expected NAME=VALUE,...".to_owned();
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            headers.set(name.trim(), &decoded_lossy(value.trim())).map_err(|_| wrong())?;
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

/// Returns whether nothing is to be pushed to `address`, as [`Push::is_disabled`](crate::Push::is_disabled) says of what was made of it.
///
/// ```
/// assert!(!wlprof_push::is_disabled("pyroscope://localhost"));
/// ```
pub fn is_disabled(address: &str) -> bool {
    target(address, &variable).is_ok_and(|target| is_switched_off(target.protocol(), &variable))
}

/// Returns whether OpenTelemetry is to do nothing in this process.
pub(crate) fn is_switched_off(protocol: Protocol, environment: Environment<'_>) -> bool {
    protocol.is_otlp() && environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
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
        let path = |variables: &[_]| target("otlp", &of(variables)).unwrap().path;
        assert_eq!((path(&[of_profiles]), path(&[of_all])), ("/x".to_owned(), "/v1development/profiles".to_owned()));
        assert_eq!(shown("otlp", &[of_all]).unwrap(), "otlp+http://d:80");
        let gateway = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://[::1]/otlp");
        assert_eq!(shown("otlp", &[gateway]).unwrap(), "otlp+https://[::1]:443/otlp");
        assert!(shown("pyroscope", &[]).unwrap_err().contains("PYROSCOPE_SERVER_ADDRESS is not set"));
        let address = ("PYROSCOPE_SERVER_ADDRESS", "http://p:4040");
        assert_eq!(shown("pyroscope", &[address]).unwrap(), "pyroscope://p:4040");
        let wrong = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
        assert!(shown("otlp", &[wrong]).unwrap_err().contains("http/protobuf"));
    }

    #[test]
    fn errors_say_no_credential() {
        let broken = [("OTEL_EXPORTER_OTLP_HEADERS", "secret")];
        let [http, grpc] = ["otlp+http://c", "otlp+grpc://c"].map(|address| Target::parse(address).unwrap());
        let error = headers(&http, &of(&broken)).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
        let whole = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20x, a=b")];
        let headers = headers(&grpc, &of(&whole)).unwrap();
        assert_eq!(headers.get("authorization").as_deref(), Some("Basic x"));
        assert!(!format!("{headers:?}").contains("Basic"), "{headers:?}");
        let json = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
        let sent = |endpoint| {
            let variables = [whole[0], json, ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
            self::headers(&http, &of(&variables)).unwrap().get("authorization").is_some()
        };
        assert!(sent("https://c") && sent("http://c:4317/path"));
        for of_others in ["https://vendor", "vendor:4317", "https://vendor/x?y"] {
            assert!(!sent(of_others), "{of_others}");
        }
    }
}
