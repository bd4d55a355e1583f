//! The check of clients' certificates during the handshake.
//!
//! A listener whose devices log in by certificate has a [`ClientTrust`]. There a client proves that it has the key of its
//! certificate, and the login finds out who has signed it, because only then it is known whose authorities count; so a
//! client that is refused is told so in the words of its protocol. With `tls.client_ca` a certificate counts if one of
//! those authorities has signed it, or one that the listener's trust knows.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};

use super::ClientCertificate;
use super::usage::CertificateUsage;

/// Longest chain of certificates that a client may show, in bytes; it is kept as long as the connection is open.
const CHAIN_MAX_BYTES: usize = 8 << 10;

/// The authorities of those who log in by certificate.
pub trait ClientTrust: Send + Sync + 'static {
    /// True if clients are asked for a certificate.
    fn asks_for_certificates(&self) -> bool;

    /// True if an authority that counts at this moment (seconds since 1970) has signed the certificate.
    fn trusts(&self, certificate: &ClientCertificate, now_s: i64) -> bool;
}

/// The trust of the listeners that have one; empty until it is set.
#[derive(Clone, Default)]
pub(super) struct TrustSlot(pub(super) Arc<OnceLock<Arc<dyn ClientTrust>>>);

/// The check of a listener with a [`ClientTrust`].
pub(super) struct LoginVerifier {
    pub(super) trust: TrustSlot,
    /// The check against `tls.client_ca`, if there is one.
    pub(super) client_ca: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl fmt::Debug for LoginVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginVerifier").field("client_ca", &self.client_ca).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for LoginVerifier {
    fn offer_client_auth(&self) -> bool {
        self.client_ca.is_some() || self.trust.0.get().is_some_and(|trust| trust.asks_for_certificates())
    }

    fn client_auth_mandatory(&self) -> bool {
        self.client_ca.as_ref().is_some_and(|verifier| verifier.client_auth_mandatory())
    }

    /// An empty list, because clients show only a certificate of a listed authority, and any may count here.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = || std::iter::once(end_entity).chain(intermediates);
        let bytes: usize = chain().map(|certificate| certificate.len()).sum();
        if bytes > CHAIN_MAX_BYTES {
            return Err(Error::General(format!("a chain of {bytes} bytes; at most {CHAIN_MAX_BYTES} are taken")));
        }
        let unreadable = Error::InvalidCertificate(CertificateError::BadEncoding);
        // Without this check the handshake would fail at the signature, for no reason that is told.
        if CertificateUsage::of(end_entity).is_some_and(|usage| !usage.has_extensions()) {
            let cause = OtherError(Arc::new(webpki::Error::UnsupportedCertVersion));
            return Err(Error::InvalidCertificate(CertificateError::Other(cause)));
        }
        let owned: Vec<CertificateDer<'_>> = chain().cloned().collect();
        let shown = ClientCertificate::new(&owned, None).ok_or(unreadable)?;
        let Some(client_ca) = &self.client_ca else { return Ok(ClientCertVerified::assertion()) };
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if self.trust.0.get().is_some_and(|trust| trust.trusts(&shown, now_s)) {
            return Ok(ClientCertVerified::assertion());
        }
        client_ca.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
