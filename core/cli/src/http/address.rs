//! Where to listen, as the user says it: `[ADDR:]PORT`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

/// An address to listen at. Without one of its own a port is this machine's alone: its loopback interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// A port of the loopback interface's, whichever is free.
    pub(crate) const ANY_LOOPBACK_PORT: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));

    /// Begins to listen. The listener knows its port if any would do (0). To be called before a guest runs, which is not to
    /// learn late that the port is taken.
    ///
    /// # Errors
    /// Why it cannot be listened at and what to do, for the user.
    pub(crate) fn bind(self) -> Result<TcpListener, String> {
        let Self(address) = self;
        TcpListener::bind(address).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrNotAvailable => "give an address of this machine's, or a port alone",
                _ => "give another port, or 0 for any that is free",
            };
            format!("cannot listen at {address}: {error}; {remedy}")
        })
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, port) = text.rsplit_once(':').unwrap_or(("", text));
        let address = match address {
            "" | "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            // One without brackets may be an IPv6 address of which the port was forgotten.
            _ => match address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(inner) => inner.parse().ok().map(IpAddr::V6),
                None => address.parse().ok().map(IpAddr::V4),
            },
        };
        match (address, port.parse()) {
            (Some(address), Ok(port)) => Ok(Self(SocketAddr::new(address, port))),
            _ => Err(
                "expected PORT, or ADDR:PORT with an address of this machine's, as 8080, 0.0.0.0:8080 or [::1]:8080; \
                      port 0 takes any that is free"
                    .into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_an_address_is_this_machines_alone() {
        let parsed = |text: &str| text.parse().map(|ListenAddress(address)| address.to_string());
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("0.0.0.0:65535", "0.0.0.0:65535"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::]:0", "[::]:0"),
        ] {
            assert_eq!(parsed(text), Ok(address.to_owned()), "{text}");
        }
        for text in
            ["", ":", "x", "65536", "-1", "127.0.0.1", "127.0.0.1:", "::1:8080", "[::1]", "[127.0.0.1]:1", "h:1", " 1"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_told() {
        let first = ListenAddress::ANY_LOOPBACK_PORT.bind().unwrap();
        let address = first.local_addr().unwrap();
        assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
        let error = ListenAddress(address).bind().unwrap_err();
        assert!(error.starts_with(&format!("cannot listen at {address}: ")), "{error}");
        assert!(error.ends_with("give another port, or 0 for any that is free"), "{error}");
    }
}
