//! Rules for outgoing connections: allowed targets, and trust in TLS certificates.

use std::sync::{Arc, OnceLock};

use millstream_types::{AllowedTargets, InvalidTarget, RemoteCallers};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::Error;
use crate::config::NotificationsConfig;

const ALLOWED: &str = "context.notifications.allowed_targets";
const CA_FILE: &str = "context.notifications.ca_file";

pub(crate) struct Outgoing {
    pub(crate) targets: AllowedTargets,
    pub(crate) trust: Trust,
}

impl Outgoing {
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub(crate) fn of(config: &NotificationsConfig, callers: RemoteCallers) -> Result<Self, Error> {
        let targets = AllowedTargets::read(ALLOWED, &config.allowed_targets, callers);
        let invalid = |InvalidTarget { value, rule }| Error::InvalidSetting { setting: ALLOWED, value, rule };
        Ok(Self { targets: targets.map_err(invalid)?, trust: Trust::of(config)? })
    }
}

/// The certificate authorities that are trusted for receivers over TLS.
pub(crate) struct Trust {
    named: Vec<CertificateDer<'static>>,
    is_blind: bool,
    /// Built with the first TLS connection: the system has many authorities.
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

    ///
    /// # Errors
    /// The system has no certificates, or TLS cannot be set up.
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

/// Accepts any certificate whose key the receiver holds.
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
