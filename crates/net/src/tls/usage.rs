//! The uses of a certificate: version, `basicConstraints` and `keyUsage` (RFC 5280, sections 4.1.2.1, 4.2.1.9 and
//! 4.2.1.3). Webpki does not look at `keyUsage`.

use super::certificate::CertificateElements;
use super::der::{OID, SEQUENCE, element, expect};

const BOOLEAN: u8 = 0x01;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
/// Tag of the extensions.
const EXTENSIONS: u8 = 0xA3;
const KEY_USAGE: &[u8] = &[0x55, 0x1D, 0x0F];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 0x13];
/// Bits of the first byte of `keyUsage`.
const DIGITAL_SIGNATURE: u8 = 0x80;
const KEY_CERT_SIGN: u8 = 0x04;
/// A certificate's version as it is encoded: the first one is 0.
const V3: u8 = 2;

/// The uses that a certificate allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CertificateUsage {
    has_extensions: bool,
    is_authority: bool,
    /// The first byte of `keyUsage`; `None` if the certificate does not restrict its key.
    key_usage: Option<u8>,
}

impl CertificateUsage {
    /// Reads a certificate in DER; `None` if the bytes are none.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let elements = CertificateElements::of(certificate)?;
        let has_extensions = elements.version >= V3;
        let mut read = Self { has_extensions, is_authority: false, key_usage: None };
        for (name, value) in extensions(elements.behind_key)? {
            match name {
                BASIC_CONSTRAINTS => read.is_authority = is_authority(value)?,
                KEY_USAGE => {
                    let ([_, bits @ ..], _) = expect(value, BIT_STRING)? else { return None };
                    read.key_usage = Some(bits.first().copied().unwrap_or_default());
                }
                _ => {}
            }
        }
        Some(read)
    }

    /// False for the first versions, which openssl makes without `-extfile`: nobody takes them from a client or a server.
    pub(super) fn has_extensions(self) -> bool {
        self.has_extensions
    }

    /// The certificate is that of an authority: it says so, and its key may sign certificates.
    pub(super) fn may_sign_certificates(self) -> bool {
        self.is_authority && self.allows(KEY_CERT_SIGN)
    }

    /// The key may sign a handshake.
    pub(super) fn may_sign_handshakes(self) -> bool {
        self.allows(DIGITAL_SIGNATURE)
    }

    fn allows(self, bit: u8) -> bool {
        self.key_usage.is_none_or(|bits| bits & bit != 0)
    }
}

/// The value of `cA` in `basicConstraints`; left out it is false.
fn is_authority(value: &[u8]) -> Option<bool> {
    let (content, _) = expect(value, SEQUENCE)?;
    Some(matches!(element(content), Some((BOOLEAN, [truth], _)) if *truth != 0))
}

/// Name and value of each extension among the elements behind the public key.
fn extensions(mut behind_key: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    while !behind_key.is_empty() {
        let (tag, content, rest) = element(behind_key)?;
        if tag == EXTENSIONS {
            return each(expect(content, SEQUENCE)?.0);
        }
        behind_key = rest;
    }
    Some(Vec::new())
}

fn each(mut listed: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    while !listed.is_empty() {
        let (extension, rest) = expect(listed, SEQUENCE)?;
        let (name, behind) = expect(extension, OID)?;
        let behind = match element(behind)? {
            (BOOLEAN, _, rest) => rest,
            _ => behind,
        };
        found.push((name, expect(behind, OCTET_STRING)?.0));
        listed = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyPair, KeyUsagePurpose};

    use super::*;

    fn usage(change: impl FnOnce(&mut CertificateParams)) -> CertificateUsage {
        let mut params = CertificateParams::default();
        change(&mut params);
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        CertificateUsage::of(der.der()).unwrap()
    }

    #[test]
    fn a_certificate_tells_what_its_key_may_sign() {
        let ca = IsCa::Ca(BasicConstraints::Constrained(1));
        for (is_ca, usages, certificates, handshakes) in [
            (IsCa::NoCa, vec![], false, true),
            (IsCa::ExplicitNoCa, vec![], false, true),
            (ca, vec![], true, true),
            (ca, vec![KeyUsagePurpose::KeyCertSign], true, false),
            (ca, vec![KeyUsagePurpose::DigitalSignature], false, true),
            (ca, vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign], true, false),
            (IsCa::ExplicitNoCa, vec![KeyUsagePurpose::KeyCertSign], false, false),
            (IsCa::NoCa, vec![KeyUsagePurpose::KeyEncipherment], false, false),
            (IsCa::NoCa, vec![KeyUsagePurpose::DigitalSignature], false, true),
        ] {
            let read = usage(|params| {
                params.is_ca = is_ca;
                params.key_usages.clone_from(&usages);
                params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3], vec![5; 200]));
            });
            assert!(read.has_extensions());
            let found = (read.may_sign_certificates(), read.may_sign_handshakes());
            assert_eq!(found, (certificates, handshakes), "{is_ca:?} {usages:?}");
        }
    }

    #[test]
    fn a_cut_certificate_is_none() {
        let der = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!((0..der.der().len()).all(|length| CertificateUsage::of(&der.der()[..length]).is_none()));
    }
}
