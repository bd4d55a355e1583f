//! TLS of requests to `https://` servers: those of the command line, and those to the identity provider.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Authorities that are trusted beside those of the system.
pub struct Authorities {
    /// The setting that names their file.
    setting: &'static str,
    named: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Reads the authorities in a file; without a file there are none.
    ///
    /// # Errors
    /// The file cannot be read or holds no certificates; the message names `setting`.
    pub fn read(setting: &'static str, file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Self { setting, named: Vec::new() }) };
        let unusable = || anyhow!("{setting} {}: name a readable file of certificates in PEM", path.display());
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let named = read.map_err(|_| unusable())?;
        let (_, refused) = RootCertStore::empty().add_parsable_certificates(named.iter().cloned());
        ensure!(!named.is_empty() && refused == 0, unusable());
        Ok(Self { setting, named })
    }

    /// Shakes hands with a server called `host`, whose authority must be one of these or one of the system's.
    ///
    /// # Errors
    /// No authority that is trusted has signed for `host`, or the other side speaks no TLS.
    pub async fn connect(&self, socket: TcpStream, host: &str) -> anyhow::Result<TlsStream<TcpStream>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?;
        let config = builder.with_root_certificates(self.trusted()?).with_no_client_auth();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).with_context(|| format!("{host} is no host name"))?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
        let setting = self.setting;
        connected.with_context(|| {
            format!(
                "no TLS with {host}; name the authority of its certificate with {setting}, if it has one of its own"
            )
        })
    }

    fn trusted(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.named.iter().cloned());
        let setting = self.setting;
        ensure!(
            !roots.is_empty(),
            "this machine trusts no authority; install ca-certificates, or name a file with {setting}"
        );
        Ok(roots)
    }
}
