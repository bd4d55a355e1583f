//! Checks that text is a certificate or a public key: base64 of DER, with or without PEM lines.
//!
//! It checks only the outer structure, because no login uses certificates yet.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;

/// True if the text is an X.509 certificate (RFC 5280, section 4.1): signed content, algorithm and signature.
pub(super) fn is_certificate(text: &str) -> bool {
    let parts = der(text).and_then(|der| tags_within(&der));
    parts.is_some_and(|parts| parts == [SEQUENCE, SEQUENCE, BIT_STRING])
}

/// True if the text is a public key (`SubjectPublicKeyInfo`): an algorithm and the key.
pub(super) fn is_public_key(text: &str) -> bool {
    let Some(der) = der(text) else { return false };
    let is_outlined = tags_within(&der).is_some_and(|parts| parts == [SEQUENCE, BIT_STRING]);
    let algorithm = element(&der).and_then(|(_, content, _)| element(content));
    is_outlined && algorithm.is_some_and(|(_, content, _)| content.first() == Some(&OBJECT_ID))
}

fn der(text: &str) -> Option<Vec<u8>> {
    let bare: String = text.lines().filter(|line| !line.starts_with("-----")).flat_map(str::split_whitespace).collect();
    STANDARD.decode(bare).ok()
}

/// Tags of the elements of a sequence; `None` if `der` is not exactly one sequence.
fn tags_within(der: &[u8]) -> Option<Vec<u8>> {
    let (SEQUENCE, mut content, []) = element(der)? else { return None };
    let mut tags = Vec::new();
    while !content.is_empty() {
        let (tag, _, rest) = element(content)?;
        tags.push(tag);
        content = rest;
    }
    Some(tags)
}

/// Tag and content of the first element, and what follows it (X.690, section 8.1; lengths up to 65,535).
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (length, rest) = match der.get(1..)? {
        [length @ 0..=0x7F, rest @ ..] => (usize::from(*length), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*der.first()?, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "MIIBcTCCARegAwIBAgIUM9QT9VuGe1sO/Wrxqln9weyws9MwCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCY2EwIBcNMjYxMTI1MDAzMzMyWhgPMjEyNjExMDEwMDMzMzJaMA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOqNTMFEwHQYDVR0OBBYEFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMB8GA1UdIwQYMBaAFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgJLdj2IOGyUloktgZLvqUEgxHuVwKSpb3JAUrfU63/SgCIQDsnyEILrUUo2exQEvq/3E9HZUe1Rv7w0C0+MQTmoge3g==";
    const PUBLIC_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOg==";

    #[test]
    fn certificates_public_keys_and_other_texts_are_distinguished() {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{CERTIFICATE}\n-----END CERTIFICATE-----\n");
        assert!(is_certificate(CERTIFICATE) && is_certificate(&pem) && is_public_key(PUBLIC_KEY));
        let cut = &CERTIFICATE[..CERTIFICATE.len() - 8];
        for wrong in ["", "no", "AAAA", "MAA=", PUBLIC_KEY, cut] {
            assert!(!is_certificate(wrong), "{wrong}");
        }
        for wrong in ["", "MAA=", CERTIFICATE, &PUBLIC_KEY[4..]] {
            assert!(!is_public_key(wrong), "{wrong}");
        }
    }
}
