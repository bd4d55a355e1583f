//! The certificates of clients: subject and issuer as text (RFC 4514), validity and public key.
//!
//! Reads the few elements of DER that lead there. Signatures and all rules are checked elsewhere, by webpki.

use rustls::pki_types::CertificateDer;

use super::der::{SEQUENCE, element, expect, whole};
use super::name::{attribute, distinguished_name};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tag of the version, with which the certificate's body may begin.
const VERSION: u8 = 0xA0;

/// The fields of a certificate. Its signature is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFields {
    /// The subject, such as `CN=thermometer-7,O=Example`.
    pub subject: String,
    /// The subject of the authority that signed it.
    pub issuer: String,
    /// The first second at which it is valid, since 1970.
    pub valid_from_s: i64,
    /// The last second at which it is valid, since 1970.
    pub valid_until_s: i64,
    /// The public key in DER (`SubjectPublicKeyInfo`).
    pub public_key: Vec<u8>,
}

impl CertificateFields {
    /// Reads a certificate in DER; `None` if the bytes are none.
    pub fn read(certificate: &[u8]) -> Option<Self> {
        let elements = CertificateElements::of(certificate)?;
        let (valid_from_s, valid_until_s) = validity(elements.validity)?;
        Some(Self {
            subject: distinguished_name(elements.subject)?,
            issuer: distinguished_name(elements.issuer)?,
            valid_from_s,
            valid_until_s,
            public_key: elements.public_key.to_vec(),
        })
    }

    /// The value of the first attribute of this kind in the subject, such as `CN`, `OU` or `O`.
    pub fn subject_attribute(&self, kind: &str) -> Option<String> {
        attribute(&self.subject, kind)
    }
}

/// The certificate that a client has shown in its TLS handshake. The client has its key; who has signed it is checked
/// against `tls.client_ca`, or by the login of the listener (see [`ClientTrust`](crate::ClientTrust)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    fields: CertificateFields,
    chain: Vec<CertificateDer<'static>>,
    server_name: Option<Box<str>>,
}

impl ClientCertificate {
    /// The chain as it was sent, the client's certificate first; `None` if that cannot be read.
    pub(super) fn new(chain: &[CertificateDer<'_>], server_name: Option<&str>) -> Option<Self> {
        let fields = CertificateFields::read(chain.first()?)?;
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Some(Self { fields, chain, server_name: server_name.map(Into::into) })
    }

    /// The fields of the client's own certificate.
    pub fn fields(&self) -> &CertificateFields {
        &self.fields
    }

    /// The subject, such as `CN=thermometer-7,O=Example`.
    pub fn subject(&self) -> &str {
        &self.fields.subject
    }

    /// The subject of the authority that signed it.
    pub fn issuer(&self) -> &str {
        &self.fields.issuer
    }

    /// The certificates in DER as the client sent them, its own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The names on the way to a root: the client's own subject, its issuer, the issuers of certificates with that subject, and
    /// so on. Certificates of the chain that do not lead on are not among them.
    pub fn names_upwards(&self) -> Vec<Vec<String>> {
        let fields: Vec<_> = self.chain.iter().filter_map(|certificate| CertificateFields::read(certificate)).collect();
        let mut levels = vec![vec![self.fields.subject.clone()]];
        let mut next = vec![self.fields.issuer.clone()];
        let is_known = |levels: &[Vec<String>], name: &String| levels.iter().any(|names| names.contains(name));
        while !next.is_empty() {
            // The client's own name may also be that of an authority.
            next.retain(|name| levels.len() == 1 || !is_known(&levels[1..], name));
            next.dedup();
            let above = fields.iter().skip(1).filter(|above| next.contains(&above.subject));
            let above = above.map(|above| above.issuer.clone()).collect();
            levels.push(std::mem::replace(&mut next, above));
        }
        levels.retain(|names| !names.is_empty());
        levels
    }

    /// The server name that the client has asked for (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

/// The elements of a certificate that are read here, in DER.
pub(super) struct CertificateElements<'a> {
    /// 0 for the first version.
    pub(super) version: u8,
    pub(super) issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    public_key: &'a [u8],
    /// The elements behind the public key: identifiers that nobody uses, and extensions.
    pub(super) behind_key: &'a [u8],
}

impl<'a> CertificateElements<'a> {
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (content, _) = expect(certificate, SEQUENCE)?;
        let (body, _) = expect(content, SEQUENCE)?;
        let (version, body) = match element(body)? {
            (VERSION, number, rest) => (*expect(number, INTEGER)?.0.last()?, rest),
            _ => (0, body),
        };
        // Serial number, and algorithm of the signature.
        let (_, _, rest) = element(body)?;
        let (_, rest) = expect(rest, SEQUENCE)?;
        let (issuer, rest) = expect(rest, SEQUENCE)?;
        let (validity, rest) = expect(rest, SEQUENCE)?;
        let (subject, rest) = expect(rest, SEQUENCE)?;
        let (public_key, behind_key) = whole(rest, SEQUENCE)?;
        Some(Self { version, issuer, validity, subject, public_key, behind_key })
    }
}

/// The last second at which a certificate is valid, since 1970; `None` if it cannot be read.
pub(super) fn valid_until_s(certificate: &[u8]) -> Option<i64> {
    validity(CertificateElements::of(certificate)?.validity).map(|(_, until)| until)
}

/// The first and the last second of a validity, since 1970.
fn validity(content: &[u8]) -> Option<(i64, i64)> {
    let (from, rest) = time(content)?;
    Some((from, time(rest)?.0))
}

/// A moment in seconds since 1970, and the bytes behind it.
fn time(content: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, digits, behind) = element(content)?;
    let digits = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        GENERALIZED_TIME if digits.len() == 14 => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    Some((days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second, behind))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. The year is counted from March, so that a leap day ends it.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_subject_reads_as_in_rfc_4514() {
        let oid = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let rows: [(Vec<(DnType, &str)>, &str); 5] = [
            (vec![], ""),
            (vec![(DnType::CommonName, "thermometer-7")], "CN=thermometer-7"),
            (
                vec![(DnType::CountryName, "DE"), (DnType::OrganizationName, "Müller"), (DnType::CommonName, "a")],
                "CN=a,O=Müller,C=DE",
            ),
            (vec![(DnType::CommonName, " a, \"b\"+c\\d ")], "CN=\\ a\\, \\\"b\\\"\\+c\\\\d\\ "),
            (vec![(oid, "a@b")], "1.2.840.113549.1.9.1=#0c03614062"),
        ];
        for (parts, expected) in rows {
            let der = certificate(|params| {
                for (kind, value) in parts {
                    params.distinguished_name.push(kind, DnValue::Utf8String(value.to_owned()));
                }
            });
            let read = ClientCertificate::new(&[der], None).unwrap();
            assert_eq!((read.subject(), read.issuer()), (expected, expected));
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (year, month, day, expected) in
            [(2049, 12, 31, 2_524_521_600), (2050, 1, 1, 2_524_608_000), (2024, 2, 29, 1_709_164_800)]
        {
            let der = certificate(|params| params.not_after = rcgen::date_time_ymd(year, month, day));
            assert_eq!(valid_until_s(&der), Some(expected), "{year}");
        }
    }

    #[test]
    fn no_cut_of_a_certificate_is_read_beyond_its_end() {
        let der = certificate(|params| {
            params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3], vec![0; 300]));
        });
        for length in 0..der.len() {
            assert_eq!(valid_until_s(&der[..length]), None);
        }
        assert!(valid_until_s(&der).is_some());
    }
}
