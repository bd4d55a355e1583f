//! The handshake of one connection: bounded in time, counted, and told in the log at a bounded rate if it fails.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::AlertDescription;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::{ApplicationProtocol, ClientAuth, ClientCertificate, ServerTls, TlsConfig, reasons};
use crate::log_rate_limit::LogRateLimit;
use crate::metrics::{Counter, Metrics};
use crate::pending_login::PendingLogin;
use crate::shutdown::Shutdown;
use crate::transport::TransportStream;

/// The first byte that a client of TLS sends.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Most bytes that a connection keeps for a client that reads slowly.
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// The handshakes of one address.
#[derive(Debug)]
pub(crate) struct TlsHandshake {
    listener: &'static str,
    tls: ServerTls,
    application: ApplicationProtocol,
    is_login: bool,
    succeeded: Counter,
    /// `None` for a reason that the listener cannot have.
    failed: [Option<Counter>; FailureReason::ALL.len()],
    log_limit: LogRateLimit,
}

/// The end of a handshake.
pub(crate) enum HandshakeEnd {
    /// The stream, and the certificate that the client has shown.
    Secured(TransportStream, Option<Arc<ClientCertificate>>),
    /// The client does not speak TLS; nothing of what it sent is read.
    NotTls(TcpStream),
    /// It has failed, or the listener stops.
    Failed,
}

impl TlsHandshake {
    pub(crate) fn new(
        listener: &'static str,
        tls: ServerTls,
        application: ApplicationProtocol,
        is_login: bool,
        metrics: &Metrics,
    ) -> Self {
        let help = "TLS handshakes that ended well.";
        let succeeded = metrics.counter("millstream_tls_handshakes_total", help, &[("listener", listener)]);
        let help = "TLS handshakes that failed.";
        let failed = FailureReason::ALL.map(|reason| {
            let labels = [("listener", listener), ("reason", reason.as_str())];
            let counter = || metrics.counter("millstream_tls_handshake_failures_total", help, &labels);
            reason.can_occur(&tls.0.config, is_login).then(counter)
        });
        Self { listener, tls, application, is_login, succeeded, failed, log_limit: LogRateLimit::default() }
    }

    /// Waits for the handshake. The client of a failed one is told why, as far as TLS can.
    /// From its whole hello on it has the time of a handshake, not that of the `login` that follows.
    pub(crate) async fn run(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        shutdown: &Shutdown,
        login: Option<&PendingLogin>,
    ) -> HandshakeEnd {
        let limit = Duration::from_millis(self.tls.0.config.handshake_timeout_ms);
        let shaken = tokio::select! {
            biased;
            () = shutdown.clone().begun() => return HandshakeEnd::Failed,
            shaken = timeout(limit, self.shake(socket, login)) => shaken,
        };
        match shaken {
            Ok(Ok(Ok(stream))) => {
                self.succeeded.inc();
                let session = stream.get_ref().1;
                let shown = session.peer_certificates();
                let certificate = shown.and_then(|chain| ClientCertificate::new(chain, session.server_name()));
                let certificate = certificate.map(Arc::new);
                if let Some(certificate) = &certificate {
                    tracing::debug!(listener = self.listener, %peer, subject = certificate.subject(), "client certificate");
                }
                HandshakeEnd::Secured(TransportStream::from(stream), certificate)
            }
            Ok(Ok(Err(socket))) => {
                self.fail(peer, FailureReason::NotTls, "the client does not speak TLS");
                HandshakeEnd::NotTls(socket)
            }
            Ok(Err(error)) => {
                let (reason, text) = explain(&error);
                self.fail(peer, reason, &text);
                HandshakeEnd::Failed
            }
            Err(_) => {
                let text = format!("it took longer than tls.handshake_timeout_ms = {}", limit.as_millis());
                self.fail(peer, FailureReason::Timeout, &text);
                HandshakeEnd::Failed
            }
        }
    }

    /// Gives the socket back if its client does not speak TLS.
    async fn shake(
        &self,
        socket: TcpStream,
        login: Option<&PendingLogin>,
    ) -> io::Result<Result<TlsStream<TcpStream>, TcpStream>> {
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] != HANDSHAKE_RECORD {
            return Ok(Err(socket));
        }
        let begun = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        if let Some(login) = login {
            login.heard();
        }
        let config = self.tls.0.loaded.load().server_config(self.application, self.is_login);
        let limit = |session: &mut rustls::ServerConnection| session.set_buffer_limit(Some(SEND_BUFFER_BYTES));
        begun.into_stream_with(config, limit).await.map(Ok)
    }

    fn fail(&self, peer: SocketAddr, reason: FailureReason, why: &str) {
        if let Some(counter) = &self.failed[reason as usize] {
            counter.inc();
        }
        if let Some(left_out) = self.log_limit.admit(Instant::now()) {
            let (listener, reason) = (self.listener, reason.as_str());
            tracing::warn!(listener, %peer, reason, why, left_out, "TLS handshake failed");
        }
    }
}

/// The reasons of failed handshakes, as metrics tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureReason {
    Timeout,
    Closed,
    NotTls,
    ServerCertificate,
    NoClientCertificate,
    ClientCertificate,
    NothingInCommon,
    Protocol,
}

impl FailureReason {
    /// In the order of their numbers.
    const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Closed,
        Self::NotTls,
        Self::ServerCertificate,
        Self::NoClientCertificate,
        Self::ClientCertificate,
        Self::NothingInCommon,
        Self::Protocol,
    ];

    /// True on a listener with this configuration, whose clients log in by certificate if `is_login`.
    fn can_occur(self, config: &TlsConfig, is_login: bool) -> bool {
        let checks_authority = !config.client_ca.as_os_str().is_empty();
        match self {
            Self::NoClientCertificate => checks_authority && config.client_auth == ClientAuth::Required,
            Self::ClientCertificate => checks_authority || is_login,
            _ => true,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::NotTls => "not_tls",
            Self::ServerCertificate => "server_certificate",
            Self::NoClientCertificate => "no_client_certificate",
            Self::ClientCertificate => "client_certificate",
            Self::NothingInCommon => "nothing_in_common",
            Self::Protocol => "protocol",
        }
    }
}

/// The reason of a failure, and a sentence for the operator.
fn explain(error: &io::Error) -> (FailureReason, String) {
    let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
        return (FailureReason::Closed, format!("the client closed the connection: {error}"));
    };
    match cause {
        rustls::Error::AlertReceived(alert) => refused_by_client(*alert),
        rustls::Error::NoCertificatesPresented => (
            FailureReason::NoClientCertificate,
            "the client has no certificate, and tls.client_auth = required".to_owned(),
        ),
        rustls::Error::InvalidCertificate(reason) => (
            FailureReason::ClientCertificate,
            format!("the client's certificate is refused: {}", reasons::of_certificate(reason)),
        ),
        rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol => (
            FailureReason::NothingInCommon,
            format!("client and server have no version, cipher or protocol in common: {cause}"),
        ),
        _ => (FailureReason::Protocol, cause.to_string()),
    }
}

/// The sentence for an alert that the client sent.
fn refused_by_client(alert: AlertDescription) -> (FailureReason, String) {
    let why = match alert {
        AlertDescription::CertificateExpired => "the client refuses the server's certificate: it has expired",
        AlertDescription::UnknownCA => "the client does not trust the authority of the server's certificate",
        AlertDescription::CertificateUnknown => {
            "the client refuses the server's certificate and does not say why: look at its authority, dates and names"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied => {
            "the client refuses the server's certificate: its name may be another than the one that the client asks for"
        }
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            return (
                FailureReason::NothingInCommon,
                format!("the client has no version or cipher in common: {alert:?}"),
            );
        }
        AlertDescription::CloseNotify | AlertDescription::UserCanceled => {
            return (FailureReason::Closed, format!("the client closed the connection: {alert:?}"));
        }
        _ => return (FailureReason::Protocol, format!("the client broke off: {alert:?}")),
    };
    (FailureReason::ServerCertificate, format!("{why} ({alert:?})"))
}
