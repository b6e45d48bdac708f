//! Where windows are pushed to: the server's protocol and address.

use http::Uri;
use std::fmt;

/// How a server takes profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Pyroscope's `push.v1`, with pprof inside.
    Pyroscope,
    /// OpenTelemetry's profiles over HTTP, in the layout of protocol 1.10.
    OtlpHttp,
    /// The same over gRPC.
    OtlpGrpc,
    /// Parca's `WriteRaw` over gRPC, with pprof inside.
    Parca,
}

/// What an address begins with, its protocol, whether that is by TLS, and its usual port.
const SCHEMES: [(&str, Protocol, bool, u16); 8] = [
    ("pyroscope", Protocol::Pyroscope, false, 4040),
    ("pyroscopes", Protocol::Pyroscope, true, 443),
    ("otlp+http", Protocol::OtlpHttp, false, 4318),
    ("otlp+https", Protocol::OtlpHttp, true, 4318),
    ("otlp+grpc", Protocol::OtlpGrpc, false, 4317),
    ("otlp+grpcs", Protocol::OtlpGrpc, true, 4317),
    ("parca", Protocol::Parca, false, 7070),
    ("parcas", Protocol::Parca, true, 7070),
];

impl Protocol {
    /// Returns whether requests are gRPC's, which need HTTP/2.
    pub(crate) fn is_grpc(self) -> bool {
        matches!(self, Self::OtlpGrpc | Self::Parca)
    }

    /// Returns whether requests are OpenTelemetry's.
    pub(crate) fn is_otlp(self) -> bool {
        matches!(self, Self::OtlpHttp | Self::OtlpGrpc)
    }

    /// The path of requests, behind that of the address.
    fn path(self) -> &'static str {
        match self {
            Self::Pyroscope => "/push.v1.PusherService/Push",
            Self::OtlpHttp => "/v1development/profiles",
            Self::OtlpGrpc => "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
            Self::Parca => "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
        }
    }
}

/// A server and how it takes profiles.
///
/// ```
/// let target = wlprof_push::Target::parse("pyroscope://localhost")?;
/// assert_eq!(target.to_string(), "pyroscope://localhost:4040");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) protocol: Protocol,
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The whole path of requests.
    pub(crate) path: String,
    shown: String,
}

impl Target {
    /// Reads an address such as `pyroscope://localhost:4040`.
    ///
    /// # Errors
    /// What is wrong with it, in words for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let schemes = || SCHEMES.map(|(scheme, ..)| format!("{scheme}://")).join(", ");
        if text.contains('@') {
            return Err(
                "credentials do not belong into an address: give them by --push-headers FILE or the environment"
                    .to_owned(),
            );
        }
        if text.contains('?') {
            return Err("an address of a server has no `?`".to_owned());
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return Err(format!("{text}: not an address; expected {}", schemes()));
        };
        let found = SCHEMES.iter().find(|(scheme, ..)| uri.scheme_str() == Some(scheme));
        let Some(&(scheme, protocol, is_tls, usual)) = found else {
            return Err(format!("{text}: the scheme says how the server takes profiles; expected {}", schemes()));
        };
        // An address of IPv6 stands in brackets, which are no part of it.
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(format!("{text}: there is no host in it"));
        }
        let behind_host =
            uri.authority().map_or("", |authority| authority.as_str()).rsplit(']').next().unwrap_or_default();
        let port = match (behind_host.rsplit_once(':'), uri.port_u16()) {
            (None, _) => usual,
            (Some(_), Some(port @ 1..)) => port,
            (Some(_), _) => return Err(format!("{text}: expected a port from 1 to 65535")),
        };
        let own = uri.path().trim_end_matches('/');
        let path = match protocol {
            // One that has a path for profiles takes them there.
            Protocol::OtlpHttp if own.ends_with("/profiles") => own.to_owned(),
            _ => format!("{own}{}", protocol.path()),
        };
        let mut target = Self { protocol, is_tls, host, port, path, shown: String::new() };
        target.shown = format!("{scheme}://{}{own}", target.authority());
        Ok(target)
    }

    /// The same server, which takes requests at the very path of its address.
    pub(crate) fn at_its_own_path(mut self) -> Self {
        let own = self.path.strip_suffix(self.protocol.path()).unwrap_or(&self.path);
        self.path = if own.is_empty() { "/".to_owned() } else { own.to_owned() };
        self
    }

    /// Returns how the server takes profiles.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The host and port, as requests name them.
    pub(crate) fn authority(&self) -> String {
        let bracketed = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{bracketed}:{}", self.port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_protocol_port_and_path() {
        let read = |text: &str| {
            let target = Target::parse(text).unwrap();
            (target.protocol, target.is_tls, target.authority(), target.path)
        };
        let push = "/push.v1.PusherService/Push".to_owned();
        assert_eq!(read("pyroscope://h"), (Protocol::Pyroscope, false, "h:4040".to_owned(), push.clone()));
        assert_eq!(read("pyroscopes://h/p/").3, format!("/p{push}"));
        assert_eq!(read("otlp+http://h").3, "/v1development/profiles");
        assert_eq!(read("otlp+https://h/api/default/v1/profiles").3, "/api/default/v1/profiles");
        assert_eq!(read("otlp+grpc://[::1]:9").2, "[::1]:9");
        assert!(read("parcas://h").1);
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_is_expected() {
        for (text, why) in [
            ("http://h:4040", "pyroscope://"),
            ("h:4040", "expected"),
            ("pyroscope://", "expected"),
            ("pyroscope://u:secret@h", "--push-headers"),
            ("pyroscope://h?token=secret", "`?`"),
            ("pyroscope://h:99999", "port"),
            ("otlp+grpc://[::1]:0", "port"),
            ("parca://h:", "port"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
