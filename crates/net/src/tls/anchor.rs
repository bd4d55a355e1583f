//! Trust anchors: authorities, or clients' own certificates and keys, that make a client's certificate count.

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, Der, TrustAnchor as WebPkiAnchor, UnixTime};
use std::collections::BTreeSet;
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::certificate::{CertificateElements, CertificateFields, ClientCertificate, valid_until_s};
use super::der::{SEQUENCE, expect};
use super::name::distinguished_name;
use super::reasons::in_words;
use super::usage::CertificateUsage;

/// An authority that signs clients' certificates, or a client's own certificate or key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustAnchor {
    subject: String,
    /// `SubjectPublicKeyInfo`, in DER.
    public_key: Vec<u8>,
    name_constraints: Option<Vec<u8>>,
    valid_from_s: i64,
    valid_until_s: i64,
    /// False for a client's own certificate, which makes no other one count.
    is_authority: bool,
}

/// The reason for which an anchor does not make a certificate count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// The moment is outside of the certificate's validity.
    #[error("the certificate is valid from {from_s} to {until_s} (seconds since 1970)")]
    OutOfDate {
        /// The first second of its validity.
        from_s: i64,
        /// The last second of its validity.
        until_s: i64,
    },
    /// The moment is outside of the anchor's validity.
    #[error("the authority is valid from {from_s} to {until_s} (seconds since 1970)")]
    AnchorOutOfDate {
        /// The first second of its validity.
        from_s: i64,
        /// The last second of its validity.
        until_s: i64,
    },
    /// The anchor has not signed the certificate, or the certificate breaks a rule of its authorities.
    #[error("the authority has not signed the certificate, or not for a client: {0}")]
    NotSigned(String),
}

/// Certificates that cannot be used for what they are shown for.
const NOT_FOR_LOGIN: &str = "the key of the certificate may not sign a handshake (keyUsage without digitalSignature)";
const NO_AUTHORITY: &str =
    "the entry is a client's own certificate, no authority (CA:FALSE, or keyUsage without keyCertSign)";

impl TrustAnchor {
    /// The anchor that a certificate in DER stands for; `None` if the bytes are no certificate.
    pub fn of_certificate(certificate: &[u8]) -> Option<Self> {
        let fields = CertificateFields::read(certificate)?;
        let der = CertificateDer::from(certificate);
        let anchor = webpki::anchor_from_trusted_cert(&der).ok()?;
        let name_constraints = anchor.name_constraints.map(|constraints| constraints.to_vec());
        let usage = CertificateUsage::of(certificate)?;
        // Before there were extensions, a root was known by having signed itself.
        let is_old_root = !usage.has_extensions() && fields.subject == fields.issuer;
        let is_authority = usage.may_sign_certificates() || is_old_root;
        let CertificateFields { subject, valid_from_s, valid_until_s, public_key, .. } = fields;
        Some(Self { subject, public_key, name_constraints, valid_from_s, valid_until_s, is_authority })
    }

    /// The anchor with this subject, in the form of [`normalized_name`](crate::normalized_name), and this public key in
    /// DER, valid from the first to the last of these seconds since 1970.
    pub fn of_key(subject: String, public_key: Vec<u8>, valid_from_s: i64, valid_until_s: i64) -> Self {
        Self { subject, public_key, name_constraints: None, valid_from_s, valid_until_s, is_authority: true }
    }

    /// The subject, in the form of [`normalized_name`](crate::normalized_name).
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Checks that this anchor makes a client's certificate count at `now_s`. Returns the last second at which it does.
    ///
    /// # Errors
    /// [`Untrusted`] says why it does not.
    pub fn check(&self, client: &ClientCertificate, now_s: i64) -> Result<i64, Untrusted> {
        let Self { valid_from_s: from_s, valid_until_s: until_s, .. } = *self;
        if !(from_s..=until_s).contains(&now_s) {
            return Err(Untrusted::AnchorOutOfDate { from_s, until_s });
        }
        let fields = client.fields();
        let (from_s, until_s) = (fields.valid_from_s, fields.valid_until_s);
        if !(from_s..=until_s).contains(&now_s) {
            return Err(Untrusted::OutOfDate { from_s, until_s });
        }
        // The client has proven in its handshake that it has the key.
        if fields.public_key == self.public_key && fields.subject == self.subject {
            return Ok(until_s.min(self.valid_until_s));
        }
        if !self.is_authority {
            return Err(Untrusted::NotSigned(NO_AUTHORITY.to_owned()));
        }
        let path_until_s = self.check_chain(client.chain(), now_s)?;
        Ok(until_s.min(path_until_s).min(self.valid_until_s))
    }

    /// The last second at which all certificates between this anchor and the client's are valid. Others in the chain do
    /// no harm (RFC 8446, section 4.4.2).
    fn check_chain(&self, chain: &[CertificateDer<'_>], now_s: i64) -> Result<i64, Untrusted> {
        let refuse = |why: &str| Untrusted::NotSigned(why.to_owned());
        // The name in the bytes that the certificates have it in, because webpki compares those.
        let issuers =
            chain.iter().filter_map(|certificate| CertificateElements::of(certificate)).map(|elements| elements.issuer);
        let issuers: BTreeSet<&[u8]> =
            issuers.filter(|issuer| distinguished_name(issuer).as_deref() == Some(&*self.subject)).collect();
        if issuers.is_empty() {
            return Err(refuse(&format!("no certificate is issued by {}", self.subject)));
        }
        let (key, _) = expect(&self.public_key, SEQUENCE).ok_or_else(|| refuse("its key cannot be read"))?;
        let anchor = |issuer| WebPkiAnchor {
            subject: Der::from_slice(issuer),
            subject_public_key_info: Der::from_slice(key),
            name_constraints: self.name_constraints.as_deref().map(Der::from_slice),
        };
        let anchors: Vec<_> = issuers.into_iter().map(anchor).collect();
        let (leaf, between) = chain.split_first().ok_or_else(|| refuse("there is no certificate"))?;
        if !CertificateUsage::of(leaf).is_some_and(CertificateUsage::may_sign_handshakes) {
            return Err(refuse(NOT_FOR_LOGIN));
        }
        let leaf = EndEntityCert::try_from(leaf).map_err(|error| refuse(&in_words(&error)))?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now_s).unwrap_or_default()));
        let usage = KeyUsage::client_auth();
        let path = leaf
            .verify_for_usage(algorithms.all, &anchors, between, now, usage, None, Some(&may_sign_each_other))
            .map_err(|error| refuse(&in_words(&error)))?;
        let ends = path.intermediate_certificates().filter_map(|certificate| valid_until_s(&certificate.der()));
        Ok(ends.min().unwrap_or(i64::MAX))
    }
}

/// Refuses a path over a certificate whose key may not sign certificates.
fn may_sign_each_other(path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
    let may_sign = |der: &[u8]| CertificateUsage::of(der).is_some_and(CertificateUsage::may_sign_certificates);
    if path.intermediate_certificates().all(|certificate| may_sign(&certificate.der())) {
        Ok(())
    } else {
        Err(webpki::Error::EndEntityUsedAsCa)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
    };

    use super::super::reasons::NOT_FOR_SIGNING;
    use super::*;

    /// The beginning of the year 2026.
    const NOW_S: i64 = 1_767_225_600;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn authority(name: &str, above: Option<&Issuer>) -> Issuer {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        match above {
            Some(above) => CertifiedIssuer::signed_by(params, key, above).unwrap(),
            None => CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    fn client(by: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = params("client");
        change(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), by).unwrap().der().clone()
    }

    fn shown(chain: &[&CertificateDer<'static>]) -> ClientCertificate {
        let chain: Vec<_> = chain.iter().map(|certificate| (*certificate).clone()).collect();
        ClientCertificate::new(&chain, None).unwrap()
    }

    #[test]
    fn an_anchor_counts_for_what_it_has_signed_itself_or_by_others_while_all_are_valid() {
        let root = authority("root", None);
        let (between, twin) = (authority("between", Some(&root)), authority("root", None));
        let direct = client(&root, |_| {});
        let indirect = client(&between, |_| {});
        let expired = client(&root, |params| params.not_after = date_time_ymd(2025, 1, 1));
        let later = client(&root, |params| params.not_before = date_time_ymd(2030, 1, 1));
        let anchor = TrustAnchor::of_certificate(root.der()).unwrap();
        let fields = CertificateFields::read(root.der()).unwrap();
        let as_key = |until_s| TrustAnchor::of_key("CN=root".to_owned(), fields.public_key.clone(), 0, until_s);
        let twin = TrustAnchor::of_certificate(twin.der()).unwrap();
        let rows = [
            (&anchor, shown(&[&direct]), ""),
            (&as_key(i64::MAX), shown(&[&direct]), ""),
            (&anchor, shown(&[&indirect, between.der()]), ""),
            (&anchor, shown(&[&indirect]), "no certificate is issued by CN=root"),
            (&twin, shown(&[&direct]), "made by another key"),
            (&anchor, shown(&[&expired]), "valid from"),
            (&anchor, shown(&[&later]), "valid from"),
            (&as_key(NOW_S - 1), shown(&[&direct]), "the authority is valid from"),
        ];
        for (at, (anchor, certificate, expected)) in rows.into_iter().enumerate() {
            let text = anchor.check(&certificate, NOW_S).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(if expected.is_empty() { text.is_empty() } else { text.contains(expected) }, "row {at}: {text}");
        }
    }

    #[test]
    fn a_client_that_signs_its_own_certificate_is_its_own_anchor_and_ends_with_it() {
        let own = authority("client", None);
        let anchor = TrustAnchor::of_certificate(own.der()).unwrap();
        assert!(anchor.check(&shown(&[own.der()]), NOW_S).is_ok());
        let other = authority("client", None);
        assert!(anchor.check(&shown(&[other.der()]), NOW_S).is_err(), "another key of the same name");
        let public_key = CertificateFields::read(own.der()).unwrap().public_key;
        let pinned = TrustAnchor::of_key("CN=client".to_owned(), public_key, 0, NOW_S + 5);
        assert_eq!(pinned.check(&shown(&[own.der()]), NOW_S), Ok(NOW_S + 5));
    }

    #[test]
    fn keys_sign_only_what_their_certificates_allow() {
        let root = authority("root", None);
        let anchor = TrustAnchor::of_certificate(root.der()).unwrap();
        let between = |usages: &[KeyUsagePurpose], is_ca: IsCa| {
            let mut params = params("between");
            (params.is_ca, params.key_usages) = (is_ca, usages.to_vec());
            CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &root).unwrap()
        };
        let ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let through = |between: &Issuer| shown(&[&client(between, |_| {}), between.der()]);
        let usable = |usage: KeyUsagePurpose| shown(&[&client(&root, |params| params.key_usages = vec![usage])]);
        for (certificate, expected) in [
            (through(&between(&[KeyUsagePurpose::KeyCertSign], ca)), ""),
            (through(&between(&[KeyUsagePurpose::DigitalSignature], ca)), NOT_FOR_SIGNING),
            (through(&between(&[], IsCa::ExplicitNoCa)), NOT_FOR_SIGNING),
            (usable(KeyUsagePurpose::DigitalSignature), ""),
            (usable(KeyUsagePurpose::KeyEncipherment), NOT_FOR_LOGIN),
        ] {
            let text = anchor.check(&certificate, NOW_S).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.ends_with(expected) && text.is_empty() == expected.is_empty(), "{expected}: {text}");
        }
    }

    #[test]
    fn a_clients_own_certificate_is_an_anchor_for_itself_alone() {
        for usages in [&[][..], &[KeyUsagePurpose::DigitalSignature]] {
            let mut own = params("own");
            (own.is_ca, own.key_usages) = (IsCa::ExplicitNoCa, usages.to_vec());
            let own = CertifiedIssuer::self_signed(own, KeyPair::generate().unwrap()).unwrap();
            let anchor = TrustAnchor::of_certificate(own.der()).unwrap();
            assert!(anchor.check(&shown(&[own.der()]), NOW_S).is_ok());
            let forged = client(&own, |_| {});
            let refusal = anchor.check(&shown(&[&forged, own.der()]), NOW_S).unwrap_err();
            assert_eq!(refusal, Untrusted::NotSigned(NO_AUTHORITY.to_owned()));
        }
    }

    #[test]
    fn certificates_beside_the_path_do_no_harm() {
        let (root, other) = (authority("root", None), authority("other", None));
        let between = authority("between", Some(&root));
        let expired = client(&other, |params| params.not_after = date_time_ymd(2025, 1, 1));
        let direct = client(&between, |params| params.not_after = date_time_ymd(2030, 1, 1));
        let alone = shown(&[&direct, between.der()]);
        let among = shown(&[&direct, &expired, other.der(), between.der(), root.der()]);
        let anchor = TrustAnchor::of_certificate(root.der()).unwrap();
        assert_eq!(anchor.check(&among, NOW_S), anchor.check(&alone, NOW_S));
        assert!(anchor.check(&among, NOW_S).is_ok_and(|until_s| until_s > NOW_S));
        let names = |levels: &[&[&str]]| {
            levels.iter().map(|level| level.iter().map(|name| format!("CN={name}")).collect()).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(among.names_upwards(), names(&[&["client"], &["between"], &["root"]]));
        assert_eq!(shown(&[root.der()]).names_upwards(), names(&[&["root"], &["root"]]));
    }
}
