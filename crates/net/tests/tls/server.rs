//! A listener with TLS that echoes, and clients of it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_net::{
    Admitted, ClientAuth, ConnectionLimits, Endpoints, Listener, LoginTimeout, Metrics, Protocol, Refusal, ServerTls,
    Serving, Shutdown, TlsConfig, TlsError, TransportStream,
};
use millstream_testkit::{Authority, Signed};
use millstream_types::{MemoryBudget, SystemClock};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Beyond what any test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sends back what it receives, after a line that names the client by its certificate.
struct Echo;

impl Protocol for Echo {
    async fn serve(self: Arc<Self>, mut stream: TransportStream, admitted: Admitted) {
        admitted.login.succeeded(&millstream_types::TenantId::default()).unwrap();
        let subject = admitted.tls.client_certificate.as_ref().map_or("nobody", |certificate| certificate.subject());
        if stream.write_all(format!("{subject}\n").as_bytes()).await.is_err() {
            return;
        }
        let (mut reading, mut writing) = stream.into_split();
        // An error is the client's end, which the test sees on its side.
        let _ = tokio::io::copy(&mut reading, &mut writing).await;
    }

    async fn turn_away(self: Arc<Self>, mut stream: TransportStream, _: SocketAddr, _: Shutdown, refusal: Refusal) {
        let _ = stream.write_all(refusal.to_string().as_bytes()).await;
    }
}

/// A server with the certificate of `localhost` in `dir`.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    pub(crate) authority: Authority,
    pub(crate) metrics: Metrics,
    pub(crate) memory: MemoryBudget,
    pub(crate) serving: Serving,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(|_, _| {}, 1_000)
    }

    /// The same with other settings.
    pub(crate) fn start_with(change: impl FnOnce(&mut TlsConfig, &TempDir), connections_max: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("tests");
        let mut config = config(&dir, &authority.server(&["localhost"]));
        change(&mut config, &dir);
        let metrics = Metrics::default();
        let tls = load(config, &metrics).unwrap();
        tokio::spawn(tls.clone().watch());
        let endpoints = Endpoints::default().with_tls(SocketAddr::from(([127, 0, 0, 1], 0)), tls);
        let memory = MemoryBudget::new("memory.budget_bytes", 64 << 20);
        let limits = ConnectionLimits {
            connections_max,
            setting: "echo.connections_max",
            connection_bytes: 0,
            memory: memory.clone(),
            login_timeout: LoginTimeout { setting: "echo.login_timeout_ms", limit_ms: 10_000 },
        };
        let (serving, _) = Listener::bind("echo", endpoints).unwrap().serve(Arc::new(Echo), limits, &metrics);
        Self { dir, authority, metrics, memory, serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// A client that trusts the server's authority, after the server's first line.
    pub(crate) async fn connect(&self) -> (String, TlsStream<TcpStream>) {
        self.try_connect("localhost", client(&self.authority, None)).await.unwrap()
    }

    pub(crate) async fn try_connect(
        &self,
        name: &str,
        config: ClientConfig,
    ) -> io::Result<(String, TlsStream<TcpStream>)> {
        let socket = TcpStream::connect(self.address()).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let mut line = String::new();
        while !line.ends_with('\n') {
            line.push(char::from(stream.read_u8().await?));
        }
        Ok((line.trim_end().to_owned(), stream))
    }

    /// Waits until the metrics have this line.
    pub(crate) async fn shows(&self, line: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.metrics.text().lines().any(|shown| shown == line) {
            assert!(tokio::time::Instant::now() < deadline, "{line} is not in\n{}", self.metrics.text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until this many handshakes have failed for `reason`.
    pub(crate) async fn has_failed(&self, reason: &str, times: u64) {
        let labels = format!("{{listener=\"echo\",reason=\"{reason}\"}}");
        self.shows(&format!("millstream_tls_handshake_failures_total{labels} {times}")).await;
    }
}

pub(crate) fn load(config: TlsConfig, metrics: &Metrics) -> Result<ServerTls, TlsError> {
    ServerTls::load(config, Arc::new(SystemClock::default()), metrics)
}

/// The settings for a certificate in `dir`.
pub(crate) fn config(dir: &TempDir, signed: &Signed) -> TlsConfig {
    let [certificate, key] = signed.write(dir.path(), "server");
    TlsConfig { certificate, key, ..TlsConfig::default() }
}

/// Has clients asked for a certificate of `authority`.
pub(crate) fn ask_clients(config: &mut TlsConfig, dir: &TempDir, authority: &Authority, client_auth: ClientAuth) {
    let path: PathBuf = dir.path().join("clients.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    (config.client_ca, config.client_auth) = (path, client_auth);
}

/// The settings of a client that trusts `authority` and has a certificate, if it is given one.
pub(crate) fn client(authority: &Authority, certificate: Option<&Signed>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    match certificate {
        None => builder.with_no_client_auth(),
        Some(Signed { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    }
}
