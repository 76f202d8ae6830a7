//! Who may pass on TCP: the right host name, the token, and for browsers the same origin.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

use super::problem::Problem;

/// Paths that tell nothing but whether the service works.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// See the module.
pub(crate) struct Gate {
    token: String,
    listen: SocketAddr,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Gate {
    pub(crate) fn new(token: String, listen: SocketAddr) -> Self {
        Gate { token, listen }
    }

    /// Where it listens.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The host that was asked for, if it is this one.
    pub(crate) fn host<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let host = text(headers, header::HOST).unwrap_or_default();
        match self.is_ours(host) {
            true => Ok(host),
            false => Err(Problem::new(
                "forbidden",
                format!(
                    "the host \"{host}\" is not served here: use http://{}",
                    self.listen
                ),
            )),
        }
    }

    fn judge(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let host = self.host(headers)?;
        if OPEN.contains(&path) {
            return Ok(());
        }
        self.authorized(headers)?;
        let reads = [Method::GET, Method::HEAD];
        match text(headers, header::ORIGIN) {
            Some(origin) if !reads.contains(method) && !same_origin(origin, host) => {
                Err(Problem::new(
                    "forbidden",
                    format!("a page of {origin} may not write here"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// A name that a foreign page could make resolve to this host is refused. On all addresses
    /// (`0.0.0.0`) any address will do: it cannot be made to resolve to another.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<std::net::IpAddr>().ok();
        ["127.0.0.1", "localhost", "[::1]"].contains(&name)
            || address.is_some_and(|address| {
                self.listen.ip() == address || self.listen.ip().is_unspecified()
            })
    }

    fn authorized(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let given = text(headers, header::AUTHORIZATION).unwrap_or_default();
        let given = match given.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => "",
        };
        match bool::from(given.as_bytes().ct_eq(self.token.as_bytes())) {
            true => Ok(()),
            false => Err(Problem::new(
                "unauthorized",
                "send Authorization: Bearer with the token that lies in the data dir's file \"token\"",
            )),
        }
    }
}

pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(crate) fn same_origin(origin: &str, host: &str) -> bool {
    let origin = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

/// The layer of the TCP listener.
pub(super) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.judge(request.method(), request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(listen: &str) -> Gate {
        Gate::new("a".repeat(64), listen.parse().unwrap())
    }

    fn status(gate: &Gate, method: Method, path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        gate.judge(&method, path, &map)
            .map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn loopback_is_not_authentication() {
        let gate = gate("127.0.0.1:8080");
        let host = ("host", "127.0.0.1:8080");
        let token = format!("Bearer {}", "a".repeat(64));
        let short = format!("Bearer {}", "a".repeat(63));
        let read = |headers: &[(&str, &str)]| status(&gate, Method::GET, "/v1/agents", headers);
        assert_eq!(read(&[host]), 401);
        assert_eq!(read(&[host, ("authorization", "Bearer ")]), 401);
        assert_eq!(read(&[host, ("authorization", &short)]), 401);
        assert_eq!(read(&[host, ("authorization", &"a".repeat(64))]), 401);
        assert_eq!(read(&[host, ("authorization", &token)]), 200);
        assert_eq!(status(&gate, Method::GET, "/healthz", &[host]), 200);
        assert_eq!(status(&gate, Method::GET, "/readyz", &[host]), 200);
        assert_eq!(
            status(&gate, Method::GET, "/readyz/../v1/agents", &[host]),
            401
        );
    }

    #[test]
    fn a_name_that_was_made_to_resolve_here_is_refused() {
        let token = format!("Bearer {}", "a".repeat(64));
        let from = |gate: &Gate, host: &str| {
            let headers = [("host", host), ("authorization", &token)];
            status(gate, Method::GET, "/v1/agents", &headers)
        };
        let local = gate("127.0.0.1:8080");
        for good in [
            "127.0.0.1:8080",
            "localhost:8080",
            "localhost",
            "[::1]:8080",
            "[::1]",
        ] {
            assert_eq!(from(&local, good), 200, "{good}");
        }
        for bad in [
            "evil.test",
            "evil.test:8080",
            "localhost.evil.test",
            "10.0.0.1:8080",
            "",
        ] {
            assert_eq!(from(&local, bad), 403, "{bad}");
        }
        assert_eq!(from(&gate("10.0.0.1:80"), "10.0.0.1:80"), 200);
        assert_eq!(from(&gate("0.0.0.0:80"), "10.0.0.1:80"), 200);
        assert_eq!(from(&gate("0.0.0.0:80"), "evil.test:80"), 403);
    }

    #[test]
    fn a_foreign_page_may_not_write() {
        let gate = gate("127.0.0.1:8080");
        let token = format!("Bearer {}", "a".repeat(64));
        let from = |origin: &str| {
            let headers = [
                ("host", "127.0.0.1:8080"),
                ("authorization", token.as_str()),
                ("origin", origin),
            ];
            status(&gate, Method::POST, "/v1/agents", &headers)
        };
        assert_eq!(from("http://127.0.0.1:8080"), 200);
        for bad in [
            "http://evil.test",
            "null",
            "http://127.0.0.1:8081",
            "http://127.0.0.1",
        ] {
            assert_eq!(from(bad), 403, "{bad}");
        }
    }
}
