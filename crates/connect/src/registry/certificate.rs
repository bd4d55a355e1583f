//! Certificates in documents: base64 of DER, with or without PEM lines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_net::CertificateFields;

/// The fields of a certificate that is given as text; `None` if the text is no X.509 certificate.
pub(crate) fn read_certificate(text: &str) -> Option<CertificateFields> {
    CertificateFields::read(&der(text)?)
}

/// The bytes of a text.
pub(super) fn der(text: &str) -> Option<Vec<u8>> {
    let bare: String = text.lines().filter(|line| !line.starts_with("-----")).flat_map(str::split_whitespace).collect();
    STANDARD.decode(bare).ok()
}

#[cfg(test)]
mod tests {
    use super::super::PublicKey;
    use super::*;

    const CERTIFICATE: &str = "MIIBcTCCARegAwIBAgIUM9QT9VuGe1sO/Wrxqln9weyws9MwCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCY2EwIBcNMjYxMTI1MDAzMzMyWhgPMjEyNjExMDEwMDMzMzJaMA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOqNTMFEwHQYDVR0OBBYEFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMB8GA1UdIwQYMBaAFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgJLdj2IOGyUloktgZLvqUEgxHuVwKSpb3JAUrfU63/SgCIQDsnyEILrUUo2exQEvq/3E9HZUe1Rv7w0C0+MQTmoge3g==";
    const PUBLIC_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOg==";

    #[test]
    fn certificates_public_keys_and_other_texts_are_distinguished() {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{CERTIFICATE}\n-----END CERTIFICATE-----\n");
        for text in [CERTIFICATE, &pem] {
            assert_eq!(read_certificate(text).unwrap().subject, "CN=ca");
        }
        assert_eq!(PublicKey::read(PUBLIC_KEY).unwrap().algorithm(), "EC");
        let cut = &CERTIFICATE[..CERTIFICATE.len() / 2];
        for wrong in ["", "no", "AAAA", "MAA=", PUBLIC_KEY, cut] {
            assert!(read_certificate(wrong).is_none(), "{wrong}");
        }
        for wrong in ["", "MAA=", CERTIFICATE, &PUBLIC_KEY[4..]] {
            assert!(PublicKey::read(wrong).is_none(), "{wrong}");
        }
    }
}
