//! MQTT over any stream of bytes, as a listener serves it.

use std::net::SocketAddr;
use std::sync::Arc;

use millstream_net::{Admitted, Protocol, Refusal, Shutdown, TlsSession};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::adapter::MqttAdapter;
use super::connection::serve;
use super::handshake::{Entrance, Peer};
use super::signals::Signals;

/// MQTT over any stream of bytes.
pub(super) struct Mqtt {
    pub(super) adapter: Arc<MqttAdapter>,
    /// Changes whenever the registry has.
    pub(super) registry: watch::Receiver<u64>,
}

impl Mqtt {
    fn signals(&self, shutdown: Shutdown) -> Signals {
        Signals { shutdown, registry: self.registry.clone() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Protocol<S> for Mqtt {
    async fn serve(self: Arc<Self>, stream: S, admitted: Admitted) {
        let Admitted { peer, shutdown, tls, memory, login } = admitted;
        let entrance = Entrance::Admitted(login);
        serve(stream, Peer { address: peer, tls }, self.adapter.clone(), self.signals(shutdown), entrance).await;
        drop(memory);
    }

    /// A client says who it is before it can be told that there is no room.
    async fn turn_away(self: Arc<Self>, stream: S, peer: SocketAddr, shutdown: Shutdown, refusal: Refusal) {
        serve(
            stream,
            Peer { address: peer, tls: TlsSession::default() },
            self.adapter.clone(),
            self.signals(shutdown),
            Entrance::Refused(refusal),
        )
        .await;
    }
}
