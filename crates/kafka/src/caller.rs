//! Who asks: what a handler knows of its request's connection and header.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Bell, Partition};
use millstream_types::{Excess, MemoryBudget, Principal, Role, Roles, TenantId, TopicId, Traffic};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Fault;
use crate::group;
use crate::node::Node;
use crate::refusal::Refusal;

/// Most partitions that one connection is told about; a client that fetches more waits out its own time.
const WATCHED_MAX: usize = 100_000;

/// How far over its limit an account may come by requests over several connections.
const EXCESS_MAX: Duration = Duration::from_secs(60);

/// One connection, as handlers see it.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// Rung when a partition has moved that this connection has waited for. Requests are answered one after the other, so
    /// it has one listener.
    pub(crate) bell: Arc<Bell>,
    watched: Mutex<HashSet<(TopicId, u32)>>,
    /// It has agreed on how to log in.
    has_shaken_hands: AtomicBool,
    session: Mutex<Session>,
    /// Until when nothing more is read from it.
    muted_until: Mutex<Option<Instant>>,
    peer_was_kept_waiting: AtomicBool,
}

/// Whom a connection speaks for.
#[derive(Clone)]
struct Session {
    /// `None` until it has logged in where that is asked for.
    principal: Option<Arc<Principal>>,
    /// The node as its tenant sees it.
    node: Arc<Node>,
}

impl Connection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr, node: &Arc<Node>) -> Self {
        let anonymous = || Principal { tenant: TenantId::default(), name: String::new(), roles: Roles::APPLICATION };
        let principal = node.logins.is_none().then(|| Arc::new(anonymous()));
        Self {
            peer,
            local,
            bell: Arc::new(Bell::of_consumer()),
            watched: Mutex::default(),
            has_shaken_hands: AtomicBool::new(false),
            session: Mutex::new(Session { principal, node: Arc::clone(node) }),
            muted_until: Mutex::new(None),
            peer_was_kept_waiting: AtomicBool::new(false),
        }
    }

    pub(crate) fn shake_hands(&self) {
        self.has_shaken_hands.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_shaken_hands(&self) -> bool {
        self.has_shaken_hands.load(Ordering::Relaxed)
    }

    /// From the next request on it speaks for `principal`.
    pub(crate) fn log_in(&self, principal: Arc<Principal>, node: &Node) {
        let node = node.of(&principal.tenant);
        *self.session.lock() = Session { principal: Some(principal), node };
    }

    /// The principal, once there is one, and the node as its tenant sees it.
    pub(crate) fn session(&self) -> (Option<Arc<Principal>>, Arc<Node>) {
        let session = self.session.lock();
        (session.principal.clone(), Arc::clone(&session.node))
    }

    /// The client gets no records as long as the budget has no room; said once for a connection.
    pub(crate) fn tell_lack_of_memory(&self, memory: &MemoryBudget) {
        if !self.peer_was_kept_waiting.swap(true, Ordering::Relaxed) {
            let (peer, setting, limit) = (self.peer, memory.setting(), memory.limit_bytes());
            tracing::warn!(%peer, "kafka: no room in {setting} = {limit} for records that are fetched; they wait");
        }
    }

    /// Reads nothing more for that long.
    fn mute(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut muted = self.muted_until.lock();
        *muted = (*muted).max(Some(until));
    }

    /// Until when nothing is to be read, if that is not over.
    pub(crate) fn muted_until(&self) -> Option<Instant> {
        self.muted_until.lock().filter(|until| *until > Instant::now())
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
    /// Who has logged in; `None` only for requests that come before.
    pub(crate) principal: Option<Arc<Principal>>,
}

impl Caller {
    /// Whether the client has `role`.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.roles.has(role))
    }

    /// Refuses who may not change or read topics in that way.
    pub(crate) fn check(&self, role: Role) -> Result<(), Refusal> {
        self.check_or(role, ResponseError::TopicAuthorizationFailed)
    }

    /// As [`Caller::check`], in other words for the client's program.
    pub(crate) fn check_or(&self, role: Role, error: ResponseError) -> Result<(), Refusal> {
        if self.has(role) {
            return Ok(());
        }
        let name = self.principal.as_ref().map_or("", |principal| &principal.name);
        let role = format!("{role:?}").to_lowercase();
        Err(Refusal::new(error, format!("user '{name}' has not the role {role}, which this takes")))
    }

    /// Puts `bytes` to the client's account and its tenant's. If one of them is over its limit nothing is read from
    /// this connection until it no longer is; answers for how long that is, in ms.
    pub(crate) fn charge(&self, traffic: Traffic, bytes: usize) -> i32 {
        let Some(excess) = self.node.quotas.charge(traffic, &self.node.tenant, self.client(), bytes as u64) else {
            return 0;
        };
        self.connection.mute(excess.wait);
        i32::try_from(excess.wait.as_millis()).unwrap_or(i32::MAX).max(1)
    }

    /// Refuses to begin what would take an account still further over its limit that is far over it already. Whoever waits
    /// as he is told does not get there; whoever comes back over new connections instead does.
    pub(crate) fn check_excess(&self, traffic: Traffic) -> Result<(), Fault> {
        match self.node.quotas.excess(traffic, &self.node.tenant, self.client()) {
            Some(Excess { setting, rate, wait }) if wait > EXCESS_MAX => {
                Err(Fault::OverQuota { setting, rate, wait_ms: wait.as_millis() })
            }
            _ => Ok(()),
        }
    }

    /// Whose use is counted together: the user's, or that of all who call themselves by one name.
    fn client(&self) -> &str {
        match &self.principal {
            Some(principal) if !principal.name.is_empty() => &principal.name,
            _ => &self.client_id,
        }
    }

    /// The groups of this node.
    pub(crate) fn groups(&self) -> &Arc<group::Coordinator> {
        &self.node.groups
    }

    /// The client as a group knows it.
    pub(crate) fn member(&self) -> group::Caller {
        group::Caller {
            tenant: self.node.tenant.clone(),
            roles: self.principal.as_ref().map_or(Roles::NONE, |principal| principal.roles),
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
