//! The hosts that outgoing connections may go to.
//!
//! A setting lists names, domains, addresses, networks, and the words `public` and `private`. A name that is not listed is
//! looked up by the caller, and only its addresses in a listed network are used.
//!
//! An empty list allows public addresses; and private ones only while every caller is a program on this machine, which
//! reaches them itself. Callers from elsewhere would see through the server into a network that is closed to them
//! (OWASP, "Server-Side Request Forgery Prevention"). Link-local addresses, where clouds keep their machines' secrets, must
//! be listed always.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The word for all addresses that anybody on the internet may have.
const PUBLIC: &str = "public";
/// The word for the addresses of this machine and of networks behind it.
const PRIVATE: &str = "private";

/// Tells whether callers may be on other machines.
pub type RemoteCallers = Arc<dyn Fn() -> bool + Send + Sync>;

/// The hosts that outgoing connections of one kind may go to.
#[derive(Clone)]
pub struct AllowedTargets {
    setting: &'static str,
    names: Vec<String>,
    networks: Vec<Network>,
    /// Kinds of addresses that are allowed by their word.
    kinds: Vec<AddressKind>,
    callers: RemoteCallers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressKind {
    Public,
    /// This machine, and networks that the internet does not reach.
    Private,
    /// Link-local, multicast and the like: no host that others would name.
    Special,
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
    /// Reads the value of `setting`; what an empty one allows depends on `callers`.
    ///
    /// # Errors
    /// The first text that is no target.
    pub fn read(setting: &'static str, allowed: &[String], callers: RemoteCallers) -> Result<Self, InvalidTarget> {
        let mut targets = Self { setting, names: Vec::new(), networks: Vec::new(), kinds: Vec::new(), callers };
        for text in allowed {
            let is_name = |text: &str| {
                let name = text.strip_prefix("*.").unwrap_or(text);
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            };
            match (text.as_str(), Network::read(text)) {
                (PUBLIC, _) => targets.kinds.push(AddressKind::Public),
                (PRIVATE, _) => targets.kinds.push(AddressKind::Private),
                (_, Some(network)) => targets.networks.push(network),
                (_, None) if is_name(text) => targets.names.push(text.to_ascii_lowercase()),
                (_, None) => {
                    let rule = "each is a host's name, '*.' and a domain, an address, a network as 10.0.0.0/8, or the word \
                                public or private";
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
            || match address_of(host) {
                Some(address) => self.holds(address),
                None => self.is_empty() || !self.networks.is_empty() || !self.kinds.is_empty(),
            };
        if may_be { Ok(()) } else { Err(self.refused(host, address_of(host))) }
    }

    /// The allowed ones of the addresses that were found for `host`.
    ///
    /// # Errors
    /// None of the addresses is allowed.
    pub fn among(&self, host: &str, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let first = found.first().map(SocketAddr::ip);
        if !self.is_named(host) {
            found.retain(|found| self.holds(found.ip()));
        }
        if found.is_empty() { Err(self.refused(host, first)) } else { Ok(found) }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.networks.is_empty() && self.kinds.is_empty()
    }

    /// The host is allowed by name, whatever its address.
    fn is_named(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_of = |name: &String| match name.strip_prefix('*') {
            Some(domain) => host.ends_with(domain) && host.len() > domain.len(),
            None => host == *name,
        };
        self.names.iter().any(is_of)
    }

    fn holds(&self, address: IpAddr) -> bool {
        if !self.is_empty() {
            let kind = AddressKind::of(address);
            return self.kinds.contains(&kind) || self.networks.iter().any(|network| network.holds(address));
        }
        match AddressKind::of(address) {
            AddressKind::Public => true,
            AddressKind::Private => !(self.callers)(),
            AddressKind::Special => false,
        }
    }

    /// The refusal of a host whose address, as far as it is known, is this one.
    fn refused(&self, host: &str, address: Option<IpAddr>) -> String {
        let setting = self.setting;
        match address.map(AddressKind::of).filter(|_| self.is_empty()) {
            Some(AddressKind::Private) => format!(
                "'{host}' is a private address, which must be among {setting} where callers log in; ask the operator to \
                 add it, or 'public' and 'private' for all"
            ),
            Some(AddressKind::Special) => {
                format!(
                    "'{host}' is a link-local or special address, which must be among {setting}; ask the operator to add it"
                )
            }
            _ => format!("'{host}' is not among {setting}; ask the operator to add it"),
        }
    }
}

impl fmt::Debug for AllowedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllowedTargets({:?} {:?} {:?})", self.names, self.networks, self.kinds)
    }
}

/// The address that a host is without a lookup. `localhost` and all under it is this machine (RFC 6761, 6.3).
fn address_of(host: &str) -> Option<IpAddr> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_local = name == "localhost" || name.ends_with(".localhost");
    if is_local { Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse().ok() }
}

impl AddressKind {
    /// By the registries of special-purpose addresses (RFC 6890).
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let is_special = address.is_link_local() || address.is_multicast() || address.is_broadcast();
        match address.octets() {
            _ if is_special || address.is_unspecified() => Self::Special,
            _ if address.is_loopback() || address.is_private() => Self::Private,
            // Of this network; shared by a carrier's customers; of protocols; for measuring; reserved.
            [0, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..] | [240..=255, ..] => Self::Private,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if address.is_unicast_link_local() || address.is_multicast() || address.is_unspecified() {
            return Self::Special;
        }
        if address.is_loopback() || address.is_unique_local() {
            return Self::Private;
        }
        match address.segments() {
            // An IPv4 address behind a translator (RFC 6052) or a relay (RFC 3056).
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                Self::of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
            }
            // Deprecated site-local addresses (RFC 3879), and a translator's own network (RFC 8215).
            [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => Self::Private,
            _ => Self::Public,
        }
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
        read(allowed, true)
    }

    fn read(allowed: &[&str], are_remote: bool) -> Result<AllowedTargets, InvalidTarget> {
        let allowed: Vec<_> = allowed.iter().map(|text| (*text).to_owned()).collect();
        AllowedTargets::read("a.setting", &allowed, Arc::new(move || are_remote))
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
    fn host_names_are_checked_without_a_lookup() {
        assert_eq!(targets(&["a"]).unwrap().check("b"), Err(refused("b")));
        assert_eq!(targets(&[]).unwrap().check("b"), Ok(()));
        assert_eq!(targets(&["private"]).unwrap().check("b"), Ok(()));
    }

    #[test]
    fn private_addresses_are_allowed_by_an_empty_list_only_while_all_callers_are_here_and_special_ones_never() {
        let public = ["93.184.216.34", "2606:4700::1", "64:ff9b::5db8:d822", "2002:5db8:d822::1", "::ffff:8.8.8.8"];
        let private = [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "fd00:ec2::254",
            "fc00::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "64:ff9b:1::1",
            "fec0::1",
            "0.1.2.3",
            "198.18.0.1",
            "240.0.0.1",
            "192.0.0.8",
            "localhost",
            "a.localhost.",
        ];
        let special = [
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ];
        let [local, remote] = [false, true].map(|are_remote| read(&[], are_remote).unwrap());
        let words = [&["private"][..], &["public"], &["public", "private"]].map(|words| targets(words).unwrap());
        for (hosts, expected) in [
            (&public[..], [true, true, false, true, true]),
            (&private, [true, false, true, false, true]),
            (&special, [false, false, false, false, false]),
        ] {
            for host in hosts {
                let found = [&local, &remote].into_iter().chain(&words).map(|targets| targets.check(host).is_ok());
                assert_eq!(found.collect::<Vec<_>>(), expected, "{host}");
                let Ok(address) = host.parse() else { continue };
                let found = vec![SocketAddr::new(address, 80)];
                assert_eq!(remote.among("name", found).is_ok(), expected[1], "a name with the address {host}");
            }
        }
        for (host, words) in [("10.0.0.1", "private address"), ("169.254.169.254", "link-local")] {
            let refused = remote.check(host).unwrap_err();
            assert!(refused.contains(words) && refused.contains("a.setting"), "{refused}");
        }
        assert_eq!(targets(&["169.254.0.0/16"]).unwrap().check("169.254.169.254"), Ok(()));
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
