//! Fields of a certificate: subject and issuer as text (RFC 4514), and the end of its validity.
//!
//! Reads the few elements of DER that lead there. The signature and all rules are checked elsewhere, by webpki.

use rustls::pki_types::CertificateDer;
use std::fmt::Write as _;

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tag of the version, with which the certificate's body may begin.
const VERSION: u8 = 0xA0;

/// Short names of RFC 4514; all other attributes are named by their numbers.
const ATTRIBUTES: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1], "UID"),
];

/// A client's certificate, which one of `tls.client_ca` has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    subject: String,
    issuer: String,
    chain: Vec<CertificateDer<'static>>,
}

impl ClientCertificate {
    /// The verified chain, the client's certificate first; `None` if it names nobody.
    pub(super) fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let names = Names::of(chain.first()?)?;
        let (subject, issuer) = (distinguished_name(names.subject)?, distinguished_name(names.issuer)?);
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Some(Self { subject, issuer, chain })
    }

    /// The subject, such as `CN=thermometer-7,O=Example`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The subject of the authority that signed it.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The certificates in DER as the client sent them, its own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// The elements of a certificate that are read here, in DER.
struct Names<'a> {
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
}

impl<'a> Names<'a> {
    fn of(certificate: &'a [u8]) -> Option<Self> {
        let (whole, _) = expect(certificate, SEQUENCE)?;
        let (body, _) = expect(whole, SEQUENCE)?;
        let body = match element(body)? {
            (VERSION, _, rest) => rest,
            _ => body,
        };
        // Serial number, and algorithm of the signature.
        let (_, _, rest) = element(body)?;
        let (_, rest) = expect(rest, SEQUENCE)?;
        let (issuer, rest) = expect(rest, SEQUENCE)?;
        let (validity, rest) = expect(rest, SEQUENCE)?;
        let (subject, _) = expect(rest, SEQUENCE)?;
        Some(Self { issuer, validity, subject })
    }
}

/// The last second at which a certificate is valid, since 1970; `None` if it cannot be read.
pub(super) fn valid_until_s(certificate: &[u8]) -> Option<i64> {
    let (_, _, rest) = element(Names::of(certificate)?.validity)?;
    let (tag, digits, _) = element(rest)?;
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
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. The year is counted from March, so that a leap day ends it.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A name in the form of RFC 4514: the most particular part first.
fn distinguished_name(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (_, mut set, rest) = element(name)?;
        name = rest;
        let mut part = String::new();
        while !set.is_empty() {
            let (pair, rest) = expect(set, SEQUENCE)?;
            set = rest;
            let (oid, value) = expect(pair, OID)?;
            if !part.is_empty() {
                part.push('+');
            }
            write_attribute(&mut part, oid, value)?;
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

fn write_attribute(out: &mut String, oid: &[u8], value: &[u8]) -> Option<()> {
    let (tag, content, _) = element(value)?;
    let short = ATTRIBUTES.iter().find(|(known, _)| *known == oid).map(|(_, short)| *short);
    let text = short.and_then(|_| text(tag, content));
    match short {
        Some(short) => out.push_str(short),
        None => write_oid(out, oid)?,
    }
    out.push('=');
    match text {
        Some(text) => write_escaped(out, &text),
        None => {
            out.push('#');
            for byte in value {
                write!(out, "{byte:02x}").ok()?;
            }
        }
    }
    Some(())
}

/// The text of a string of ASN.1; `None` for other types.
fn text(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String.
        0x0C | 0x12 | 0x13 | 0x16 => std::str::from_utf8(content).ok().map(str::to_owned),
        // TeletexString, which in practice is Latin-1.
        0x14 => Some(content.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString.
        0x1E => {
            let units: Vec<u16> = content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

fn write_escaped(out: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        match character {
            '\0' => {
                out.push_str("\\00");
                continue;
            }
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.push('\\'),
            ' ' if at == 0 || at == last => out.push('\\'),
            '#' if at == 0 => out.push('\\'),
            _ => {}
        }
        out.push(character);
    }
}

fn write_oid(out: &mut String, oid: &[u8]) -> Option<()> {
    let (mut number, mut is_first) = (0_u64, true);
    for byte in oid {
        number = number.checked_mul(128)? | u64::from(byte & 0x7F);
        if byte & 0x80 != 0 {
            continue;
        }
        if std::mem::take(&mut is_first) {
            let top = (number / 40).min(2);
            write!(out, "{top}.{}", number - top * 40).ok()?;
        } else {
            write!(out, ".{number}").ok()?;
        }
        number = 0;
    }
    Some(())
}

/// The content of an element that has this tag, and the bytes behind it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag and content of the first element, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
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
            let read = ClientCertificate::new(&[der]).unwrap();
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
