//! Reasons for which files of certificates and keys cannot be used.

use std::path::PathBuf;

use rustls::pki_types::pem;

/// A setting or file of TLS that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A setting is missing or wrong.
    #[error("{setting} = {value}: {rule}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The value of the setting.
        value: String,
        /// The values that are allowed.
        rule: &'static str,
    },
    /// A file or directory cannot be read.
    #[error("{setting}: cannot read {}", .path.display())]
    Read {
        /// The setting that names the file.
        setting: &'static str,
        /// The file that cannot be used.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is not in PEM, or does not have what it must.
    #[error("{setting}: {} must be in PEM and contain {expected}", .path.display())]
    Pem {
        /// The setting that names the file.
        setting: &'static str,
        /// The file that cannot be used.
        path: PathBuf,
        /// The sections that the file must contain.
        expected: &'static str,
        /// The place in the file that is wrong.
        source: pem::Error,
    },
    /// Certificate and key cannot be used together.
    #[error("{setting}: {} cannot be used with the key {}; both must belong together", .certificate.display(), .key.display())]
    Certificate {
        /// The setting that names the certificate.
        setting: &'static str,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason, as rustls gives it.
        source: Box<rustls::Error>,
    },
    /// A certificate of the first version, which no client takes.
    #[error(
        "{setting}: {} has X.509 version 1, which no client takes: sign it as version 3, with subjectAltName \
         (openssl x509 -req: with -extfile)", .path.display()
    )]
    FirstVersion {
        /// The setting that names the file.
        setting: &'static str,
        /// The file of the certificate.
        path: PathBuf,
    },
    /// A certificate of `tls.certificates_dir` names no server.
    #[error("{setting}: {} must name a host (subjectAltName with a DNS name)", .path.display())]
    NoServerName {
        /// The setting that names the directory.
        setting: &'static str,
        /// The file of the certificate.
        path: PathBuf,
    },
    /// The authorities of clients cannot be used.
    #[error("tls.client_ca: {} must contain certificates of authorities: {reason}", .path.display())]
    ClientCa {
        /// The file that cannot be used.
        path: PathBuf,
        /// The reason, in the words of rustls.
        reason: String,
    },
    /// The cipher suites of this build do not fit.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}
