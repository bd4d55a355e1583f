//! The settings of TLS.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates and rules of all addresses with TLS. The files are in PEM, and are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// File of the server's certificate, followed by those of its authorities, if any. Needed as soon as a listener has an
    /// address with TLS. Default empty.
    pub certificate: PathBuf,
    /// File of the certificate's private key, not encrypted. Default empty.
    pub key: PathBuf,
    /// Directory of further certificates, `NAME.crt` with `NAME.key`. A client gets the one for the server name that it asks
    /// for, and else that of `tls.certificate`. Default empty: none.
    pub certificates_dir: PathBuf,
    /// File of the authorities that sign the certificates of clients. Default empty: clients are not asked for any, but for
    /// devices as soon as a tenant has authorities of its own.
    pub client_ca: PathBuf,
    /// With `tls.client_ca`: `required` refuses clients without a certificate, `optional` admits them. Default required.
    pub client_auth: ClientAuth,
    /// Time that a TLS handshake may take, in milliseconds. Default 10,000.
    pub handshake_timeout_ms: u64,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            certificates_dir: PathBuf::new(),
            client_ca: PathBuf::new(),
            client_auth: ClientAuth::Required,
            handshake_timeout_ms: 10_000,
        }
    }
}

/// The rule for clients without a certificate, where clients are asked for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// Clients without a certificate are refused.
    Required,
    /// Clients without a certificate are admitted.
    Optional,
}
