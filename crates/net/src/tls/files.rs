//! Reads the files of TLS and makes of them what a handshake needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::certificate::valid_until_s;
use super::client_verifier::{LoginVerifier, TrustSlot};
use super::server_names::CertificatesByName;
use super::usage::CertificateUsage;
use super::{ApplicationProtocol, ClientAuth, TlsConfig, TlsError};

const CERTIFICATE: &str = "tls.certificate";
const KEY: &str = "tls.key";
const CERTIFICATES_DIR: &str = "tls.certificates_dir";
const CLIENT_CA: &str = "tls.client_ca";

/// Everything that was read from the files at one time.
pub(super) struct LoadedTls {
    common: ByApplication,
    /// For listeners whose clients log in by certificate.
    logins: ByApplication,
    /// The last second of the certificate that ends first, since 1970.
    pub(super) valid_until_s: i64,
}

/// The settings of a handshake for each protocol.
struct ByApplication {
    http1: Arc<ServerConfig>,
    unnamed: Arc<ServerConfig>,
}

impl ByApplication {
    /// The sessions of clients that were checked in different ways are resumed apart, each with a key of its own.
    fn new(
        certificates: &Arc<CertificatesByName>,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut unnamed = builder.with_cert_resolver(Arc::clone(certificates) as Arc<dyn ResolvesServerCert>);
        // Clients come back without the costly part of the handshake, as long as the files stay the same. The server keeps
        // nothing for them.
        unnamed.ticketer = ring::Ticketer::new().map_err(TlsError::Setup)?;
        let mut http1 = unnamed.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { http1: Arc::new(http1), unnamed: Arc::new(unnamed) })
    }
}

impl LoadedTls {
    pub(super) fn read(config: &TlsConfig, trust: &TrustSlot) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let certificates = certificates(config, &provider)?;
        let valid_until_s = certificates.keys().filter_map(|key| valid_until_s(key.cert.first()?)).min();
        let client_ca = client_verifier(config, Arc::clone(&provider))?;
        let certificates = Arc::new(certificates);
        let common = ByApplication::new(&certificates, client_ca.clone(), &provider)?;
        let verifier = LoginVerifier { trust: trust.clone(), client_ca, provider: Arc::clone(&provider) };
        let logins = ByApplication::new(&certificates, Some(Arc::new(verifier)), &provider)?;
        Ok(Self { common, logins, valid_until_s: valid_until_s.unwrap_or(i64::MAX / 1_000) })
    }

    /// For a listener of this protocol; `is_login` if its clients log in by certificate.
    pub(super) fn server_config(&self, application: ApplicationProtocol, is_login: bool) -> Arc<ServerConfig> {
        let configs = if is_login { &self.logins } else { &self.common };
        Arc::clone(match application {
            ApplicationProtocol::Http1 => &configs.http1,
            ApplicationProtocol::Unnamed => &configs.unnamed,
        })
    }
}

/// A file and what changes when it is written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileStamp {
    path: PathBuf,
    changed: Option<(SystemTime, u64)>,
}

/// The stamps of all files, in the order of their names. A file that is not there has one, too.
pub(super) fn stamps(config: &TlsConfig) -> Vec<FileStamp> {
    let named = [&config.certificate, &config.key, &config.client_ca];
    let mut paths: Vec<PathBuf> = named.into_iter().filter(|path| !path.as_os_str().is_empty()).cloned().collect();
    paths.extend(
        pairs(&config.certificates_dir).unwrap_or_default().into_iter().flat_map(|(first, second)| [first, second]),
    );
    let stamp = |path: PathBuf| {
        let metadata = std::fs::metadata(&path);
        let changed = metadata.and_then(|metadata| Ok((metadata.modified()?, metadata.len()))).ok();
        FileStamp { path, changed }
    };
    paths.into_iter().map(stamp).collect()
}

/// The certificates `NAME.crt` of a directory, each with its `NAME.key`, in the order of their names.
fn pairs(dir: &Path) -> std::io::Result<Vec<(PathBuf, PathBuf)>> {
    if dir.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crt") {
            let key = path.with_extension("key");
            found.push((path, key));
        }
    }
    found.sort();
    Ok(found)
}

fn certificates(config: &TlsConfig, provider: &CryptoProvider) -> Result<CertificatesByName, TlsError> {
    for (setting, path) in [(CERTIFICATE, &config.certificate), (KEY, &config.key)] {
        if path.as_os_str().is_empty() {
            let rule =
                "name a file in PEM; a listener with TLS needs it ('millstream tls self-signed' makes one for a try)";
            return Err(TlsError::Setting { setting, value: "\"\"".to_owned(), rule });
        }
    }
    let default = certified_key(CERTIFICATE, &config.certificate, KEY, &config.key, provider)?;
    let mut certificates = CertificatesByName::new(default);
    let dir = &config.certificates_dir;
    let unreadable = |source| TlsError::Read { setting: CERTIFICATES_DIR, path: dir.clone(), source };
    for (certificate, key) in pairs(dir).map_err(unreadable)? {
        let certified = certified_key(CERTIFICATES_DIR, &certificate, CERTIFICATES_DIR, &key, provider)?;
        if !certificates.insert(certified) {
            return Err(TlsError::NoServerName { setting: CERTIFICATES_DIR, path: certificate });
        }
    }
    Ok(certificates)
}

/// A certificate with its chain and key; both must belong together.
fn certified_key(
    setting: &'static str,
    certificate: &Path,
    key_setting: &'static str,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates_in(setting, certificate)?;
    if chain.first().and_then(|der| CertificateUsage::of(der)).is_some_and(|usage| !usage.has_extensions()) {
        return Err(TlsError::FirstVersion { setting, path: certificate.to_owned() });
    }
    let bytes = read(key_setting, key)?;
    let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|source| TlsError::Pem {
        setting: key_setting,
        path: key.to_owned(),
        expected: "a private key that is not encrypted",
        source,
    })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|source| TlsError::Certificate {
        setting,
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source: Box::new(source),
    })
}

/// All certificates of a file; there is at least one.
fn certificates_in(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(setting, path)?;
    let unusable = |source| TlsError::Pem { setting, path: path.to_owned(), expected: "a certificate", source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(unusable)?;
    if found.is_empty() { Err(unusable(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { setting, path: path.to_owned(), source })
}

/// The check of clients' certificates; `None` if clients are not asked for any.
fn client_verifier(
    config: &TlsConfig,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let path = &config.client_ca;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let unusable = |reason: String| TlsError::ClientCa { path: path.clone(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(CLIENT_CA, path)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match config.client_auth {
        ClientAuth::Required => builder,
        ClientAuth::Optional => builder.allow_unauthenticated(),
    };
    builder.build().map(Some).map_err(|error| unusable(error.to_string()))
}
