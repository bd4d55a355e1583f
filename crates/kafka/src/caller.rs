//! Who asks: what a handler knows of its request's connection and header.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;
use millstream_log::{Bell, Partition};
use millstream_types::TopicId;
use parking_lot::Mutex;

use crate::group;
use crate::node::Node;

/// Most partitions that one connection is told about; a client that fetches more waits out its own time.
const WATCHED_MAX: usize = 100_000;

/// One connection, as handlers see it.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// Rung when a partition has moved that this connection has waited for. Requests are answered one after the other, so
    /// it has one listener.
    pub(crate) bell: Arc<Bell>,
    watched: Mutex<HashSet<(TopicId, u32)>>,
}

impl Connection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self { peer, local, bell: Arc::default(), watched: Mutex::default() }
    }

    /// Lets `partition` ring the bell from now on.
    pub(crate) fn watch(&self, partition: &Arc<dyn Partition>) {
        let mut watched = self.watched.lock();
        let key = (partition.topic().id, partition.id().partition.0);
        if watched.len() < WATCHED_MAX && watched.insert(key) {
            partition.watch(&self.bell);
        }
    }
}

/// Who asks, and in which version.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) node: Arc<Node>,
    pub(crate) connection: Arc<Connection>,
    /// What the client calls itself; empty if it does not.
    pub(crate) client_id: StrBytes,
    /// The version of the request, and so of its answer.
    pub(crate) version: i16,
}

impl Caller {
    /// The groups of this node.
    pub(crate) fn groups(&self) -> &Arc<group::Coordinator> {
        &self.node.groups
    }

    /// The client as a group knows it.
    pub(crate) fn member(&self) -> group::Caller {
        group::Caller {
            tenant: self.node.tenant.clone(),
            client_id: self.client_id.to_string(),
            client_host: self.connection.peer.ip().to_canonical().to_string(),
        }
    }

    /// Host and port under which this client is to reach this node.
    pub(crate) fn address(&self) -> (StrBytes, i32) {
        let (host, port) = self.node.config.advertised_address().unwrap_or_else(|| {
            let local = self.connection.local;
            (local.ip().to_canonical().to_string(), local.port())
        });
        (StrBytes::from_string(host), i32::from(port))
    }
}
