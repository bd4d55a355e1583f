//! Refuses web pages of other sites on a listener that accepts callers without a token.
//!
//! A page in a browser on this machine can send requests to loopback. Two rules refuse such pages:
//! - `Host` is an IP address, `localhost` or a configured name. A page that rebinds its own name to 127.0.0.1 sends that name.
//! - A request that changes something and carries `Origin` comes from a page of this server, or of an origin that
//!   the route's CORS settings allow.

use axum::http::Method;
use axum::http::header::{HOST, ORIGIN};
use std::net::IpAddr;

use crate::head::Headers;
use crate::{Cors, Problem};

/// Setting that names further hosts, as errors quote it.
const HOSTS_SETTING: &str = "applications.hosts";

/// Host names under which a listener without tokens may be called.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// IP addresses and `localhost` are always allowed; `names` come on top, without port.
    pub(crate) fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Returns `true` if the value of a `Host` header is allowed.
    pub(crate) fn has(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let name = without_port(host);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        is_ip_address(name) || is("localhost") || self.names.iter().any(|known| is(known))
    }

    /// Checks a request without a token.
    ///
    /// # Errors
    /// 403 if the host is not allowed, or if a page of another site would change something.
    pub(crate) fn check(&self, method: &Method, headers: Headers<'_>, cors: Option<&Cors>) -> Result<(), Problem> {
        if let Some(host) = headers.get(HOST.as_str()).filter(|host| !self.has(host)) {
            return Err(Problem::forbidden("this server does not accept that host name")
                .value(String::from_utf8_lossy(host))
                .rule(format!("without API tokens, Host is an IP address, localhost or a name in {HOSTS_SETTING}"))
                .remedy(format!("add the name to {HOSTS_SETTING}, or configure API tokens")));
        }
        if method.is_safe() {
            return Ok(());
        }
        check_origin(headers, cors)
    }
}

/// Refuses a request that a browser sends for a page of another origin, unless `cors` allows that origin.
///
/// # Errors
/// 403 that names the origin.
pub fn check_origin<'a>(headers: impl Into<Headers<'a>>, cors: Option<&Cors>) -> Result<(), Problem> {
    let headers = headers.into();
    let Some(origin) = headers.get(ORIGIN.as_str()) else { return Ok(()) };
    if is_own(origin, headers.get(HOST.as_str())) || cors.is_some_and(|cors| cors.allows(origin)) {
        return Ok(());
    }
    Err(Problem::forbidden("a page of another origin may not do this")
        .value(String::from_utf8_lossy(origin))
        .rule("the header Origin names this server, or is not sent")
        .remedy("call from a page of this server, or from a program"))
}

/// Returns `true` if `Origin` (`scheme://host[:port]`) has the host and port that `Host` names.
fn is_own(origin: &[u8], host: Option<&[u8]>) -> bool {
    let origin = std::str::from_utf8(origin).ok().and_then(|origin| origin.split_once("://"));
    let host = host.and_then(|host| std::str::from_utf8(host).ok());
    origin.zip(host).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_ip_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::AllowedHosts;

    #[test]
    fn hosts_are_addresses_localhost_and_configured_names() {
        let hosts = AllowedHosts::new(&["Gateway.lan".to_owned()]);
        let allowed =
            ["127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[::1]", "LocalHost:1", "gateway.lan", "192.168.1.7:80"];
        for host in allowed {
            assert!(hosts.has(host.as_bytes()), "{host}");
        }
        let refused = [
            "attacker.example",
            "attacker.example:8000",
            "localhost.attacker.example",
            "",
            "127.0.0.1.nip.io",
            ":80",
            "a:b:c",
        ];
        for host in refused {
            assert!(!hosts.has(host.as_bytes()), "{host}");
        }
    }
}
