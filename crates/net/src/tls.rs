//! TLS of a server: its certificates, which are replaced when their files change, and the handshake of a connection.
//!
//! Owner: [`ServerTls`] owns what was read from the files; each handshake takes what is in force at its beginning, and a
//! connection keeps that to its end. New files come into force as a whole or not at all.
//!
//! Not here: the stream of an open connection (`transport.rs`), limits of connections (`connections.rs`).

mod anchor;
mod certificate;
mod client_verifier;
mod config;
mod der;
mod error;
mod files;
mod handshake;
mod name;
mod reasons;
mod server_names;
mod usage;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use millstream_types::{WallClock, iso_time};
use tokio::time::sleep;

use crate::metrics::{Counter, Metrics};

pub use anchor::{TrustAnchor, Untrusted};
pub use certificate::{CertificateFields, ClientCertificate};
pub use client_verifier::ClientTrust;
pub use config::{ClientAuth, TlsConfig};
pub use error::TlsError;
pub(crate) use handshake::{HandshakeEnd, TlsHandshake};
pub use name::{NameError, normalized_name};

use client_verifier::TrustSlot;
use files::{FileStamp, LoadedTls};

/// Memory that a connection takes for TLS: its state, and a record that has come in part. An idle one has 8 KiB.
pub(crate) const TLS_CONNECTION_BYTES: u64 = 24 << 10;
/// Time between two looks at the files. Files that have changed are read once they stay the same for one look.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The protocol that a client and this server agree on in a handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApplicationProtocol {
    /// HTTP/1.1: a client that offers only others is refused.
    Http1,
    /// Nothing is agreed on, whatever the client offers.
    #[default]
    Unnamed,
}

/// The certificates and rules of the addresses with TLS. A clone is the same.
#[derive(Clone)]
pub struct ServerTls(Arc<SharedTls>);

struct SharedTls {
    config: TlsConfig,
    loaded: ArcSwap<LoadedTls>,
    trust: TrustSlot,
    /// The files as they were before they were read for the first time.
    first_stamps: Vec<FileStamp>,
    clock: Arc<dyn WallClock>,
    replaced: Counter,
    refused: Counter,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerTls").field(&self.0.config).finish()
    }
}

impl ServerTls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// [`TlsError`] names the setting, the file and the rule.
    ///
    /// # Panics
    /// If another `ServerTls` counts into the same metrics.
    pub fn load(config: TlsConfig, clock: Arc<dyn WallClock>, metrics: &Metrics) -> Result<Self, TlsError> {
        let first_stamps = files::stamps(&config);
        let trust = TrustSlot::default();
        let loaded = LoadedTls::read(&config, &trust)?;
        let help = "Times that changed TLS files came into force (replaced), or could not be used (refused).";
        let reloads = |outcome| metrics.counter("millstream_tls_reloads_total", help, &[("outcome", outcome)]);
        let (replaced, refused) = (reloads("replaced"), reloads("refused"));
        let inside =
            SharedTls { config, loaded: ArcSwap::from_pointee(loaded), trust, first_stamps, clock, replaced, refused };
        let tls = Self(Arc::new(inside));
        let shown = tls.clone();
        let help = "Time at which the first of the server's certificates ends, in seconds since 1970.";
        metrics.gauge_fn("millstream_tls_certificate_expiry_timestamp_seconds", help, move || {
            shown.0.loaded.load().valid_until_s as f64
        });
        tls.warn_of_expired();
        Ok(tls)
    }

    /// Sets the trust of the listeners whose clients log in by certificate; later calls have no effect. Before the first one
    /// they ask for certificates only because of `tls.client_ca`.
    pub fn set_client_trust(&self, trust: Arc<dyn ClientTrust>) {
        // The first one stays.
        let _ = self.0.trust.0.set(trust);
    }

    /// Reads the files again whenever they change. Files that cannot be used are told in the log and change nothing.
    pub async fn watch(self) {
        let mut read = self.0.first_stamps.clone();
        let mut seen = read.clone();
        loop {
            sleep(LOOK_INTERVAL).await;
            let looking = self.clone();
            let Ok(stamps) = tokio::task::spawn_blocking(move || files::stamps(&looking.0.config)).await else {
                return;
            };
            let is_settled = stamps == seen;
            seen = stamps;
            if !is_settled || seen == read {
                continue;
            }
            read.clone_from(&seen);
            let reading = self.clone();
            if tokio::task::spawn_blocking(move || reading.read_again()).await.is_err() {
                return;
            }
        }
    }

    fn read_again(&self) {
        match LoadedTls::read(&self.0.config, &self.0.trust) {
            Ok(loaded) => {
                self.0.loaded.store(Arc::new(loaded));
                self.0.replaced.inc();
                let certificate = self.0.config.certificate.display();
                tracing::info!(%certificate, valid_until = self.valid_until(), "TLS files were read again");
                self.warn_of_expired();
            }
            Err(error) => {
                self.0.refused.inc();
                tracing::error!(
                    error = in_full(&error),
                    "the new TLS files are not used; those from before stay in force"
                );
            }
        }
    }

    fn valid_until(&self) -> String {
        iso_time(self.0.loaded.load().valid_until_s * 1_000)
    }

    fn warn_of_expired(&self) {
        if self.0.loaded.load().valid_until_s * 1_000 < self.0.clock.now_ms() {
            let (certificate, valid_until) = (self.0.config.certificate.display(), self.valid_until());
            tracing::warn!(%certificate, valid_until, "a TLS certificate has expired; clients refuse it. Replace its file");
        }
    }
}

/// An error and its causes in one line.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
