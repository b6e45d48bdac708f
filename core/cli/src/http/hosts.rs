//! Against DNS rebinding: a server on loopback answers to names of loopback alone.
//!
//! A web page of a stranger's may have its own name resolved to 127.0.0.1 and is then, to the browser, of one origin with what
//! listens there. What it cannot have is another name in `Host` than its own. The port is not compared: it proves nothing, and is
//! another one behind `ssh -L`.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use std::net::{IpAddr, SocketAddr};

/// Which hosts a server answers to.
#[derive(Clone, Copy)]
pub(super) enum Hosts {
    /// Names and addresses of the loopback interface.
    Loopback,
    /// Any: whoever lets other machines connect may give this one whatever name.
    Any,
}

impl Hosts {
    /// Those of a server that listens at `address`.
    pub(super) fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_loopback() { Self::Loopback } else { Self::Any }
    }

    /// Whether `request` is for one of them.
    pub(super) fn contain_that_of(self, request: &Request) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => {
                let mut hosts = request.headers().get_all(HOST).iter();
                let named = match (hosts.next(), hosts.next()) {
                    (Some(host), None) => Authority::try_from(host.as_bytes()).is_ok_and(|host| is_loopback(&host)),
                    _ => false,
                };
                named && request.uri().authority().is_none_or(is_loopback)
            }
        }
    }
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn answers(at: &str, host: &str, target: &str) -> bool {
        let request = Request::builder().uri(target).header(HOST, host).body(Body::empty()).unwrap();
        Hosts::of(at.parse().unwrap()).contain_that_of(&request)
    }

    #[test]
    fn on_loopback_only_loopbacks_names_are_answered_to() {
        for at in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            for host in ["localhost", "LOCALHOST:1", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:80"] {
                assert!(answers(at, host, "/"), "{host}");
            }
            for host in
                ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "", "10.0.0.1"]
            {
                assert!(!answers(at, host, "/"), "{host}");
            }
            assert!(answers(at, "localhost", "http://127.0.0.1/"));
            assert!(!answers(at, "localhost", "http://evil.example/"));
        }
        assert!(answers("0.0.0.0:80", "box.example:80", "/"));
    }

    #[test]
    fn a_request_without_a_host_or_with_two_is_for_none() {
        let request = |hosts: &[&str]| {
            let request = hosts.iter().fold(Request::builder(), |request, host| request.header(HOST, *host));
            request.body(Body::empty()).unwrap()
        };
        assert!(Hosts::Loopback.contain_that_of(&request(&["localhost"])));
        assert!(!Hosts::Loopback.contain_that_of(&request(&[])));
        assert!(!Hosts::Loopback.contain_that_of(&request(&["localhost", "localhost"])));
    }
}
