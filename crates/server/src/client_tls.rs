//! TLS of the command line's requests to `https://` servers.

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

/// Shakes hands with a server called `host`, whose authority the system trusts or is in the file `ca`.
pub(crate) async fn connect(socket: TcpStream, host: &str, ca: Option<&Path>) -> anyhow::Result<TlsStream<TcpStream>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let config = builder.with_root_certificates(trusted(ca)?).with_no_client_auth();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(bare.to_owned()).with_context(|| format!("{host} is no host name"))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
    connected.with_context(|| {
        format!("no TLS with {host}; name the authority of its certificate with --ca, if it has one of its own")
    })
}

fn trusted(ca: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let unusable = || anyhow!("--ca {}: name a readable file of certificates in PEM", path.display());
        let named = CertificateDer::pem_file_iter(path).map_err(|_| unusable())?;
        for certificate in named {
            roots.add(certificate.map_err(|_| unusable())?).map_err(|_| unusable())?;
        }
    }
    ensure!(!roots.is_empty(), "this machine trusts no authority; install ca-certificates, or name a file with --ca");
    Ok(roots)
}
