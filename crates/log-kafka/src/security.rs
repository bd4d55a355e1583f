//! The way to the brokers: TLS, and the login.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The settings of connections to brokers. Default: neither TLS nor a login.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KafkaSecurity {
    /// TLS to the brokers.
    pub tls: Option<KafkaTls>,
    /// The login.
    pub login: Option<KafkaLogin>,
}

/// The certificates of connections to brokers, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KafkaTls {
    /// Authorities that are trusted; without a file those of the system.
    pub authorities_file: Option<PathBuf>,
    /// The certificate of this client with its chain, and its key, for brokers that ask for one.
    pub identity: Option<KafkaIdentity>,
}

/// The certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaIdentity {
    /// The certificate with its chain.
    pub certificate_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
}

/// A login by SASL.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaLogin {
    /// The way in which the password is proven.
    pub mechanism: LoginMechanism,
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for KafkaLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KafkaLogin({} by {})", self.user, self.mechanism.as_str())
    }
}

/// A mechanism of SASL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginMechanism {
    /// The password itself (RFC 4616); use TLS.
    Plain,
    /// A proof with SHA-256 (RFC 7677).
    ScramSha256,
    /// A proof with SHA-512.
    ScramSha512,
}

impl LoginMechanism {
    /// The name in the handshake.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// The configuration of TLS, from its files.
pub(crate) struct Tls(TlsConnector);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. An error names the one that cannot be used.
    pub(crate) fn read(settings: &KafkaTls) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match &settings.authorities_file {
            Some(path) => {
                let unusable = || format!("{}: name a readable file of certificates in PEM", path.display());
                let (_, refused) = roots.add_parsable_certificates(certificates(path)?);
                if refused > 0 || roots.is_empty() {
                    return Err(unusable());
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
        let builder = builder.with_root_certificates(roots);
        let config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some(KafkaIdentity { certificate_file, key_file }) => {
                let key = PrivateKeyDer::from_pem_file(key_file);
                let key = key.map_err(|_| format!("{}: name a readable key in PEM", key_file.display()))?;
                let chain = certificates(certificate_file)?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|e| format!("{} with {}: {e}", certificate_file.display(), key_file.display()))?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with the broker at `address`, whose certificate must be good for its host.
    pub(crate) async fn connect(&self, socket: TcpStream, address: &str) -> Result<TlsStream<TcpStream>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| format!("{host} is no host name"))?;
        self.0.connect(name, socket).await.map_err(|e| format!("no TLS: {e}"))
    }
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|_| format!("{}: name a readable file of certificates in PEM", path.display()))?;
    if read.is_empty() {
        return Err(format!("{} holds no certificate in PEM", path.display()));
    }
    Ok(read)
}
