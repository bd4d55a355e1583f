//! Rules for outgoing connections: allowed targets, and trust in TLS certificates.

use std::sync::{Arc, OnceLock};

use millstream_types::{AllowedTargets, InvalidTarget, RemoteCallers};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The rules for outgoing connections.
pub struct Outgoing {
    /// The hosts that may be reached.
    pub targets: AllowedTargets,
    /// The certificates that are trusted.
    pub trust: Trust,
}

/// The settings of [`Outgoing`], and their names.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingSettings<'a> {
    /// Name of the setting with the allowed targets.
    pub allowed_setting: &'static str,
    /// Hosts that may be reached.
    pub allowed: &'a [String],
    /// Name of the setting with the file of authorities.
    pub ca_setting: &'static str,
    /// File (PEM) of certificate authorities that are trusted beside the system's; may be empty.
    pub ca_file: &'a str,
    /// Certificates are not checked.
    pub insecure: bool,
}

/// A setting that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value}: {rule}")]
pub struct InvalidSetting {
    /// Name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The rule that the value breaks.
    pub rule: &'static str,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outgoing({:?})", self.targets)
    }
}

impl Outgoing {
    /// Reads the settings. What an empty list allows depends on `callers`.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the setting, its value and the rule.
    pub fn new(settings: &OutgoingSettings<'_>, callers: RemoteCallers) -> Result<Self, InvalidSetting> {
        let setting = settings.allowed_setting;
        let targets = AllowedTargets::read(setting, settings.allowed, callers);
        let invalid = |InvalidTarget { value, rule }| InvalidSetting { setting, value, rule };
        Ok(Self { targets: targets.map_err(invalid)?, trust: Trust::new(settings)? })
    }
}

/// The certificate authorities that are trusted for receivers over TLS.
pub struct Trust {
    named: Vec<CertificateDer<'static>>,
    ca_setting: &'static str,
    is_blind: bool,
    /// Built with the first TLS connection: the system has many authorities.
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trust({} named authorities)", self.named.len())
    }
}

impl Trust {
    fn new(settings: &OutgoingSettings<'_>) -> Result<Self, InvalidSetting> {
        let (ca_setting, file) = (settings.ca_setting, settings.ca_file);
        let mut named = Vec::new();
        if !file.is_empty() {
            let invalid = |rule| InvalidSetting { setting: ca_setting, value: file.to_owned(), rule };
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            named = read.map_err(|_| invalid("it must be a readable file of certificates in PEM form"))?;
            let mut roots = RootCertStore::empty();
            if named.is_empty() || roots.add_parsable_certificates(named.iter().cloned()).1 > 0 {
                return Err(invalid("it must hold certificates in PEM form, and nothing that is none"));
            }
        }
        Ok(Self { named, ca_setting, is_blind: settings.insecure, config: OnceLock::new() })
    }

    /// The configuration of TLS.
    ///
    /// # Errors
    /// The system has no certificates, or TLS cannot be set up.
    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
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
            return Err(format!(
                "this machine trusts nobody; install ca-certificates, or name a file in {}",
                self.ca_setting
            ));
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
            let ca_file = &file.display().to_string();
            let (allowed_setting, ca_setting) = ("a.targets", "a.ca_file");
            Trust::new(&OutgoingSettings { allowed_setting, allowed: &[], ca_setting, ca_file, insecure: false })
        };
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in [None, Some(""), Some("no certificate"), Some(empty)] {
            assert!(matches!(named(text), Err(InvalidSetting { setting: "a.ca_file", .. })), "{text:?}");
        }
    }
}
