//! Reasons for which certificates are refused, as people say them.

use rustls::{CertificateError, OtherError};

pub(super) const NOT_FOR_SIGNING: &str =
    "a certificate between them is no authority's (CA:FALSE, or keyUsage without keyCertSign)";

/// The reason of rustls.
pub(super) fn of_certificate(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::Other(OtherError(cause)) => match cause.downcast_ref::<webpki::Error>() {
            Some(cause) => return in_words(cause),
            None => return cause.to_string(),
        },
        CertificateError::BadEncoding => "it cannot be read",
        CertificateError::BadSignature => "its signature was made by another key",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::UnknownIssuer => "none of the authorities in tls.client_ca has signed it",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for clients (extendedKeyUsage without clientAuth)"
        }
        other => return other.to_string(),
    };
    words.to_owned()
}

/// The reason of webpki, as people say it.
pub(super) fn in_words(error: &webpki::Error) -> String {
    use webpki::Error;
    let words = match error {
        Error::UnknownIssuer => "no chain of the certificates that were shown leads to it",
        Error::InvalidSignatureForPublicKey => "the signature was made by another key",
        Error::CertExpired { .. } => "a certificate between them has expired",
        Error::CertNotValidYet { .. } => "a certificate between them is not valid yet",
        Error::CaUsedAsEndEntity => "the certificate is an authority's (CA:TRUE), no client's",
        Error::EndEntityUsedAsCa => NOT_FOR_SIGNING,
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => {
            "the certificate is not for clients (extendedKeyUsage without clientAuth)"
        }
        Error::UnsupportedCertVersion => {
            "the certificate has X.509 version 1, without extensions: sign it anew as version 3 (openssl: -extfile)"
        }
        Error::PathLenConstraintViolated => "the chain is longer than an authority in it allows (pathlen)",
        Error::NameConstraintViolation => "an authority in the chain may not sign this name (nameConstraints)",
        Error::UnsupportedCriticalExtension => "a certificate has a critical extension that is not known",
        Error::BadDer | Error::MalformedExtensions | Error::ExtensionValueInvalid => "a certificate cannot be read",
        other => return format!("a certificate cannot be used ({other})"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_reason_is_told_in_words() {
        let of_webpki = |error| CertificateError::Other(OtherError(Arc::new(error)));
        for (error, told) in [
            (of_webpki(webpki::Error::UnsupportedCertVersion), "X.509 version 1"),
            (of_webpki(webpki::Error::CaUsedAsEndEntity), "CA:TRUE"),
            (CertificateError::UnknownIssuer, "tls.client_ca"),
            (CertificateError::Expired, "has expired"),
        ] {
            let words = of_certificate(&error);
            assert!(words.contains(told) && !words.contains(&format!("{error:?}")), "{words}");
        }
    }
}
