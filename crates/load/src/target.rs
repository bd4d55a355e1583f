//! The server that a generator calls: its address, and the handshake of TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::Error;

/// URL scheme of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Mqtt,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mqtt => "mqtt",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Mqtt => 1883,
        }
    }

    /// The scheme of the same protocol over TLS, and its port.
    fn secured(self) -> (&'static str, u16) {
        match self {
            Self::Http => ("https", 443),
            Self::Mqtt => ("mqtts", 8883),
        }
    }
}

/// Address of a server and the timeout of its requests.
#[derive(Debug, Clone)]
pub(crate) struct ServerTarget {
    pub(crate) address: String,
    host: HeaderValue,
    /// Time from sending a request to its complete response.
    pub(crate) request_timeout: Duration,
    /// The handshake that begins a connection, if the server is called by TLS.
    pub(crate) tls: Option<ClientTls>,
}

impl ServerTarget {
    /// The server behind a `SCHEME://host:port` URL that was given with `option`.
    pub(crate) fn parse(
        option: &'static str,
        scheme: Scheme,
        url: &str,
        request_timeout: Duration,
    ) -> Result<Self, Error> {
        Self::read(option, scheme.name(), scheme.default_port(), url, request_timeout)
    }

    /// The same, also over TLS to a server whose authority is in the file `ca`.
    pub(crate) fn parse_with_ca(
        option: &'static str,
        scheme: Scheme,
        url: &str,
        request_timeout: Duration,
        ca: Option<&Path>,
    ) -> Result<Self, Error> {
        let (name, port) = scheme.secured();
        if url.split_once("://").is_none_or(|(given, _)| given != name) {
            return Self::parse(option, scheme, url, request_timeout);
        }
        let target = Self::read(option, name, port, url, request_timeout)?;
        let Some(ca) = ca else {
            let rule = format!("{name}:// needs the authority of the server's certificate; name its file with --ca");
            return Err(Error::Option { option, value: url.to_owned(), rule });
        };
        let host = target.address.rsplit_once(':').map_or("", |(host, _)| host);
        let tls = ClientTls::new(host, ca)?;
        Ok(Self { tls: Some(tls), ..target })
    }

    fn read(
        option: &'static str,
        name: &str,
        default_port: u16,
        url: &str,
        request_timeout: Duration,
    ) -> Result<Self, Error> {
        let refuse = |rule: String| Error::Option { option, value: url.to_owned(), rule };
        let uri: Uri = url.parse().map_err(|_| refuse(format!("expected a URL such as {name}://127.0.0.1:8080")))?;
        let host = uri.host().ok_or_else(|| refuse(format!("the URL names no host; expected {name}://HOST:PORT")))?;
        if uri.scheme_str() != Some(name) {
            return Err(refuse(format!("only {name}:// is spoken; use {name}://HOST:PORT")));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(refuse(format!("the URL must not have a path; use {name}://HOST:PORT only")));
        }
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(default_port));
        let host =
            HeaderValue::from_str(&address).map_err(|_| refuse("the host is not legal in a header".to_owned()))?;
        Ok(Self { address, host, request_timeout, tls: None })
    }

    pub(crate) fn host(&self) -> HeaderValue {
        self.host.clone()
    }
}

/// The handshake with a server of this name, whose authority was read from a file.
#[derive(Clone)]
pub(crate) struct ClientTls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClientTls").field(&self.name).finish()
    }
}

impl ClientTls {
    /// # Errors
    /// [`Error::Option`] if the file has no certificates, or the host is no server name.
    fn new(host: &str, ca: &Path) -> Result<Self, Error> {
        let refuse =
            |rule: &str| Error::Option { option: "ca", value: ca.display().to_string(), rule: rule.to_owned() };
        let unusable = "it must be a readable file of certificates in PEM";
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).map_err(|_| refuse(unusable))? {
            roots.add(certificate.map_err(|_| refuse(unusable))?).map_err(|_| refuse(unusable))?;
        }
        let bare = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare).map_err(|_| refuse("the URL of the server has no name to check"))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| refuse(&error.to_string()))?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}
