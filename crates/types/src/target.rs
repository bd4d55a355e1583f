//! The hosts that outgoing connections may go to.
//!
//! A setting lists names, domains, addresses and networks; an empty list allows all. A name that is not listed is looked
//! up by the caller, and only its addresses in a listed network are used.

use std::net::{IpAddr, SocketAddr};

/// The hosts that outgoing connections of one kind may go to; an empty list allows all.
#[derive(Debug, Clone)]
pub struct AllowedTargets {
    setting: &'static str,
    names: Vec<String>,
    networks: Vec<Network>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

/// A text that is no target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTarget {
    /// The text as it stands in the setting.
    pub value: String,
    /// The rule that it breaks, in words.
    pub rule: &'static str,
}

impl AllowedTargets {
    /// Reads the value of `setting`.
    ///
    /// # Errors
    /// The first text that is no target.
    pub fn read(setting: &'static str, allowed: &[String]) -> Result<Self, InvalidTarget> {
        let mut targets = Self { setting, names: Vec::new(), networks: Vec::new() };
        for text in allowed {
            let is_name = |text: &str| {
                let name = text.strip_prefix("*.").unwrap_or(text);
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            };
            match Network::read(text) {
                Some(network) => targets.networks.push(network),
                None if is_name(text) => targets.names.push(text.to_ascii_lowercase()),
                None => {
                    let rule = "each is a host's name, '*.' and a domain, an address, or a network as 10.0.0.0/8";
                    return Err(InvalidTarget { value: text.clone(), rule });
                }
            }
        }
        Ok(targets)
    }

    /// Checks that `host` may be allowed. A name that is not listed may still have an address in an allowed network.
    ///
    /// # Errors
    /// The host is not allowed; the text names it and the setting.
    pub fn check(&self, host: &str) -> Result<(), String> {
        let may_be = self.is_named(host)
            || match host.parse::<IpAddr>() {
                Ok(address) => self.holds(address),
                Err(_) => !self.networks.is_empty(),
            };
        if may_be { Ok(()) } else { Err(self.refused(host)) }
    }

    /// The allowed ones of the addresses that were found for `host`.
    ///
    /// # Errors
    /// None of the addresses is allowed.
    pub fn among(&self, host: &str, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        if !self.is_named(host) {
            found.retain(|found| self.holds(found.ip()));
        }
        if found.is_empty() { Err(self.refused(host)) } else { Ok(found) }
    }

    /// The host is allowed by name, whatever its address.
    fn is_named(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_of = |name: &String| match name.strip_prefix('*') {
            Some(domain) => host.ends_with(domain) && host.len() > domain.len(),
            None => host == *name,
        };
        self.names.is_empty() && self.networks.is_empty() || self.names.iter().any(is_of)
    }

    fn holds(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.holds(address))
    }

    fn refused(&self, host: &str) -> String {
        format!("'{host}' is not among {}; ask the operator to add it", self.setting)
    }
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
        Some(Self { address, bits })
    }

    fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.bits,
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros() >= self.bits,
            _ => false,
        }
    }
}

/// A URL as log lines and messages show it: without user, password, query and fragment, which may be secret.
///
/// ```
/// use millstream_types::url_without_secrets;
/// assert_eq!(url_without_secrets("https://user:password@example.org/in?token=x"), "https://example.org/in?…");
/// ```
pub fn url_without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let rest = if scheme.is_empty() { url } else { rest };
    let (place, mark) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], "?…"),
        None => (rest, ""),
    };
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{host}{path}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str) -> String {
        format!("'{host}' is not among a.setting; ask the operator to add it")
    }

    fn targets(allowed: &[&str]) -> Result<AllowedTargets, InvalidTarget> {
        AllowedTargets::read("a.setting", &allowed.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn hosts_are_allowed_by_name_and_address() {
        let targets = targets(&["Receiver", "*.example.org", "10.1.0.0/16", "192.168.1.7", "fd00::/8"]).unwrap();
        for (host, addresses, allowed) in [
            ("receiver", &["127.0.0.1"][..], &["127.0.0.1"][..]),
            ("RECEIVER.", &["127.0.0.1"], &["127.0.0.1"]),
            ("a.b.example.org", &["127.0.0.1"], &["127.0.0.1"]),
            ("10.1.255.255", &["10.1.255.255"], &["10.1.255.255"]),
            ("192.168.1.7", &["192.168.1.7"], &["192.168.1.7"]),
            ("fd12::1", &["fd12::1"], &["fd12::1"]),
            ("by-address", &["10.1.0.1", "10.2.0.1", "::ffff:10.1.0.2"], &["10.1.0.1", "::ffff:10.1.0.2"]),
        ] {
            assert_eq!(targets.check(host), Ok(()), "{host}");
            let of = |texts: &[&str]| -> Vec<SocketAddr> {
                texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 80)).collect()
            };
            assert_eq!(targets.among(host, of(addresses)), Ok(of(allowed)), "{host}");
        }
        for host in ["10.2.0.1", "192.168.1.8", "fe80::1", "127.0.0.1"] {
            assert_eq!(targets.check(host), Err(refused(host)), "{host}");
        }
        for host in ["example.org", "xexample.org", "localhost"] {
            let found = vec![SocketAddr::new("127.0.0.1".parse().unwrap(), 80)];
            assert_eq!(targets.among(host, found), Err(refused(host)), "{host}");
        }
    }

    #[test]
    fn host_names_are_checked_without_a_lookup_and_an_empty_list_allows_all() {
        assert_eq!(targets(&["a"]).unwrap().check("b"), Err(refused("b")));
        assert_eq!(targets(&[]).unwrap().check("b"), Ok(()));
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("http://a:1/n", "http://a:1/n"),
            ("http://user:pass@word@[::1]:1/n@m", "http://[::1]:1/n@m"),
            ("https://a?token=x/y@z", "https://a?…"),
            ("https://a/#x", "https://a/?…"),
            ("mqtt://user:password@a:1", "mqtt://a:1"),
            ("user:password@a", "a"),
            ("", ""),
        ] {
            assert_eq!(url_without_secrets(url), shown, "{url}");
        }
    }

    #[test]
    fn an_invalid_host_in_the_allowed_targets_is_refused() {
        for text in ["", "*", "a b", "10.0.0.0/33", "::/129", "http://a", "a:80", "*."] {
            let refused = targets(&["ok", text]).unwrap_err();
            assert_eq!(refused.value, text);
        }
    }
}
