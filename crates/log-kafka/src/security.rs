//! The way to the brokers: TLS, and the login.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_kafka_wire::Login;
use millstream_log::{Error, KafkaClusterConfig};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The error of a setting that breaks a rule.
pub(crate) fn invalid(setting: &'static str, value: impl ToString, rule: &'static str) -> Error {
    Error::InvalidSetting { setting, value: value.to_string(), rule }
}

/// The way to the brokers.
#[derive(Debug)]
pub(crate) struct Security {
    pub(crate) tls: Option<Tls>,
    pub(crate) login: Option<Login>,
}

impl Security {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub(crate) fn of(config: &KafkaClusterConfig) -> Result<Self, Error> {
        let login = match (&config.user, &config.password) {
            (None, None) => None,
            (Some(user), Some(password)) => {
                Some(Login { mechanism: config.sasl_mechanism, user: user.clone(), password: password.clone() })
            }
            (Some(user), None) => return Err(invalid("log.kafka.user", user, "set log.kafka.password as well")),
            (None, Some(_)) => {
                return Err(invalid("log.kafka.user", "none", "there is a password, so name its user"));
            }
        };
        let unused = [&config.tls_authorities, &config.tls_certificate, &config.tls_key];
        let tls = match (config.tls, unused.into_iter().flatten().next()) {
            (true, _) => Some(Tls::read(config)?),
            (false, None) => None,
            (false, Some(file)) => {
                let rule = "a file for TLS is named, so set log.kafka.tls = true, or remove it";
                return Err(invalid(setting_of(config, file), file.display(), rule));
            }
        };
        Ok(Self { tls, login })
    }
}

/// The setting that names a file.
fn setting_of(config: &KafkaClusterConfig, file: &Path) -> &'static str {
    let is_file = |named: &Option<PathBuf>| named.as_deref() == Some(file);
    match (is_file(&config.tls_authorities), is_file(&config.tls_certificate)) {
        (true, _) => "log.kafka.tls_authorities",
        (false, true) => "log.kafka.tls_certificate",
        (false, false) => "log.kafka.tls_key",
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
    fn read(config: &KafkaClusterConfig) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        match &config.tls_authorities {
            Some(path) => {
                let setting = "log.kafka.tls_authorities";
                let (_, refused) = roots.add_parsable_certificates(certificates(setting, path)?);
                if refused > 0 || roots.is_empty() {
                    return Err(invalid(setting, path.display(), "name a readable file of certificates in PEM"));
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|_| invalid("log.kafka.tls", true, "this build has no TLS"))?;
        let builder = builder.with_root_certificates(roots);
        let config = match (&config.tls_certificate, &config.tls_key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let read = PrivateKeyDer::from_pem_file(key);
                let read =
                    read.map_err(|_| invalid("log.kafka.tls_key", key.display(), "name a readable key in PEM"))?;
                let chain = certificates("log.kafka.tls_certificate", certificate)?;
                let config = builder.with_client_auth_cert(chain, read);
                let rule = "the key of log.kafka.tls_key does not belong to it";
                config.map_err(|_| invalid("log.kafka.tls_certificate", certificate.display(), rule))?
            }
            (Some(certificate), None) => {
                let rule = "name its key with log.kafka.tls_key as well";
                return Err(invalid("log.kafka.tls_certificate", certificate.display(), rule));
            }
            (None, Some(key)) => {
                let rule = "name its certificate with log.kafka.tls_certificate as well";
                return Err(invalid("log.kafka.tls_key", key.display(), rule));
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

fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        _ => Err(invalid(setting, path.display(), "name a readable file of certificates in PEM")),
    }
}
