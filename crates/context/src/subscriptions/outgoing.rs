//! Whom notifications may go to, and which receivers are believed to be who they say they are.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::config::NotificationsConfig;
use super::socket::Address;
use crate::Error;

const ALLOWED: &str = "context.notifications.allowed_targets";
const CA_FILE: &str = "context.notifications.ca_file";

/// See the module.
pub(crate) struct Outgoing {
    pub(crate) targets: Targets,
    pub(crate) trust: Trust,
}

impl Outgoing {
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub(crate) fn of(config: &NotificationsConfig) -> Result<Self, Error> {
        Ok(Self { targets: Targets::read(&config.allowed_targets)?, trust: Trust::of(config)? })
    }
}

/// The targets that are allowed; all, if none is named.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    names: Vec<String>,
    networks: Vec<Network>,
}

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Targets {
    fn read(allowed: &[String]) -> Result<Self, Error> {
        let mut targets = Self::default();
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
                    return Err(Error::InvalidSetting { setting: ALLOWED, value: text.clone(), rule });
                }
            }
        }
        Ok(targets)
    }

    /// Whether `host` may be allowed. A name that is not listed may still have an address in a network that is.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(&self, host: &str) -> Result<(), String> {
        let may_be = self.is_named(host)
            || match host.parse::<IpAddr>() {
                Ok(address) => self.holds(address),
                Err(_) => !self.networks.is_empty(),
            };
        if may_be { Ok(()) } else { Err(refused(host)) }
    }

    /// Those of the interfaces of a receiver that may be sent to.
    ///
    /// # Errors
    /// What is wrong if there is none.
    pub(crate) fn among(&self, address: &Address, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        if !self.is_named(&address.host) {
            found.retain(|found| self.holds(found.ip()));
        }
        if found.is_empty() { Err(refused(&address.host)) } else { Ok(found) }
    }

    /// Whether it is allowed wherever it leads to.
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
}

fn refused(host: &str) -> String {
    format!("'{host}' is not among {ALLOWED}; ask the operator to add it")
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

/// Whose word on who a receiver is counts.
pub(crate) struct Trust {
    named: Vec<CertificateDer<'static>>,
    is_blind: bool,
    /// Made with the first connection over TLS: the system's authorities are many.
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Trust {
    fn of(config: &NotificationsConfig) -> Result<Self, Error> {
        let mut named = Vec::new();
        if !config.ca_file.is_empty() {
            let invalid = |rule| Error::InvalidSetting { setting: CA_FILE, value: config.ca_file.clone(), rule };
            let read = CertificateDer::pem_file_iter(&config.ca_file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            named = read.map_err(|_| invalid("it must be a readable file of certificates in PEM form"))?;
            let mut roots = RootCertStore::empty();
            if named.is_empty() || roots.add_parsable_certificates(named.iter().cloned()).1 > 0 {
                return Err(invalid("it must hold certificates in PEM form, and nothing that is none"));
            }
        }
        Ok(Self { named, is_blind: config.insecure, config: OnceLock::new() })
    }

    /// How connections are made over TLS.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.config.get_or_init(|| self.build()).clone()
    }

    fn build(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        if self.is_blind {
            let anybody = Arc::new(Anybody { provider });
            return Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.named.iter().cloned());
        if roots.is_empty() {
            return Err(format!("this machine trusts nobody; install ca-certificates, or name a file in {CA_FILE}"));
        }
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

/// Believes everybody, as long as he has the key of the certificate that he shows.
#[derive(Debug)]
struct Anybody {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(allowed: &[&str]) -> Result<Targets, Error> {
        Targets::read(&allowed.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
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
            let address = Address { host: host.to_owned(), port: 80, is_tls: false };
            assert_eq!(targets.among(&address, of(addresses)), Ok(of(allowed)), "{host}");
        }
        for host in ["10.2.0.1", "192.168.1.8", "fe80::1", "127.0.0.1"] {
            assert_eq!(targets.check(host), Err(refused(host)), "{host}");
        }
        for host in ["example.org", "xexample.org", "localhost"] {
            let address = Address { host: host.to_owned(), port: 80, is_tls: false };
            let found = vec![SocketAddr::new("127.0.0.1".parse().unwrap(), 80)];
            assert_eq!(targets.among(&address, found), Err(refused(host)), "{host}");
        }
    }

    #[test]
    fn names_alone_settle_it_at_once_and_none_allow_all() {
        assert_eq!(targets(&["a"]).unwrap().check("b"), Err(refused("b")));
        assert_eq!(targets(&[]).unwrap().check("b"), Ok(()));
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for text in ["", "*", "a b", "10.0.0.0/33", "::/129", "http://a", "a:80", "*."] {
            let refused = targets(&["ok", text]).unwrap_err();
            let is_named = matches!(&refused, Error::InvalidSetting { setting: ALLOWED, value, .. } if value == text);
            assert!(is_named, "{text}: {refused}");
        }
    }

    #[test]
    fn a_file_of_authorities_must_hold_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let named = |text: Option<&str>| {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            Trust::of(&NotificationsConfig { ca_file: file.display().to_string(), ..NotificationsConfig::default() })
        };
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in [None, Some(""), Some("no certificate"), Some(empty)] {
            assert!(matches!(named(text), Err(Error::InvalidSetting { setting: CA_FILE, .. })), "{text:?}");
        }
    }
}
