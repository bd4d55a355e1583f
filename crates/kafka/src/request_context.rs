//! The context of a request: its connection, principal, client id and version.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Bell, KafkaPartition, Topic};
use millstream_net::{ListenerFull, Login, PendingLogin, Revocation};
use millstream_types::{
    AccessScope, AuditEvent, Excess, MemoryBudget, Principal, QuotaType, Role, Roles, TenantId, TopicId, TopicKind,
};
use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::authorized_operations;
use crate::broker::Broker;
use crate::config::host_and_port;
use crate::error::ConnectionError;
use crate::group;
use crate::sasl_state::SaslState;

/// Largest number of partitions that wake one connection; a client that fetches more waits for its full time.
const WATCHED_MAX: usize = 100_000;

/// Longest name of an object in the audit trail.
const AUDITED_OBJECT_MAX_CHARS: usize = 256;

/// Time by which an account may exceed its limit through requests on several connections.
const EXCESS_MAX: Duration = Duration::from_secs(60);

/// The address that a client has connected to.
#[derive(Debug)]
pub(crate) struct ReachedAddress {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
    /// The host name that the certificate was to have.
    pub(crate) server_name: Option<String>,
}

/// One connection, as handlers see it.
pub(crate) struct ClientConnection {
    pub(crate) peer: SocketAddr,
    reached: ReachedAddress,
    /// Rings when a partition that this connection waits for has moved. Requests are answered one after the other,
    /// so there is one listener.
    pub(crate) bell: Arc<Bell>,
    watched: Mutex<HashSet<(TopicId, u32)>>,
    pub(crate) sasl: Mutex<SaslState>,
    /// A login of this connection was refused.
    is_refused: AtomicBool,
    /// Tells the one who reads requests of the refusal.
    refused: Notify,
    session: Mutex<LoginSession>,
    /// Tells the one who waits for the end of a login that there is another.
    login_changed: Notify,
    pending_login: PendingLogin,
    /// No request is read from it until then.
    muted_until: Mutex<Option<Instant>>,
    /// Completes when the last append has begun that had to wait for its transaction.
    waiting_append: Mutex<Option<oneshot::Receiver<()>>>,
    peer_was_kept_waiting: AtomicBool,
}

/// The principal and tenant of a connection.
#[derive(Clone)]
struct LoginSession {
    /// `None` before the login, if logins are required.
    principal: Option<Arc<Principal>>,
    /// Ends the login; `None` if it lasts as long as the process.
    revocation: Option<Revocation>,
    /// The broker as its tenant sees it.
    broker: Arc<Broker>,
    /// From then on the login must be repeated before other requests; `None` if it lasts.
    expires_at: Option<Instant>,
}

impl LoginSession {
    /// The session without logins: an application of the tenant `default` that may act in all tenants.
    fn anonymous(broker: &Arc<Broker>, revocation: Option<Revocation>) -> Self {
        let principal = Principal {
            tenant: TenantId::default(),
            name: String::new(),
            roles: Roles::APPLICATION,
            scope: AccessScope::default(),
        };
        let broker = broker.of(&principal, true);
        Self { principal: Some(Arc::new(principal)), revocation, broker, expires_at: None }
    }

    /// The user of a login; `None` before one, and where nobody has to log in.
    fn user(&self) -> Option<&Principal> {
        self.principal.as_deref().filter(|principal| !principal.name.is_empty())
    }
}

impl ClientConnection {
    pub(crate) fn new(
        peer: SocketAddr,
        reached: ReachedAddress,
        pending_login: PendingLogin,
        broker: &Arc<Broker>,
    ) -> Self {
        let open_access = broker.logins.as_ref().map(|logins| logins.open_access());
        let session = match open_access {
            None => LoginSession::anonymous(broker, None),
            Some(Some(revocation)) => LoginSession::anonymous(broker, Some(revocation)),
            Some(None) => {
                LoginSession { principal: None, revocation: None, broker: Arc::clone(broker), expires_at: None }
            }
        };
        Self {
            peer,
            reached,
            bell: Arc::new(Bell::of_consumer()),
            watched: Mutex::default(),
            sasl: Mutex::default(),
            is_refused: AtomicBool::new(false),
            refused: Notify::new(),
            session: Mutex::new(session),
            login_changed: Notify::new(),
            pending_login,
            muted_until: Mutex::new(None),
            waiting_append: Mutex::new(None),
            peer_was_kept_waiting: AtomicBool::new(false),
        }
    }

    /// Ends the connection after a refused login: no more requests are read, and it closes when those
    /// that have begun are answered.
    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.refused.notify_one();
    }

    /// Completes when a login of this connection is refused.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// From the next request on it speaks for `principal`, for `lifetime` if there is one.
    ///
    /// # Errors
    /// [`ListenerFull`] if the listener has no room for another of its tenant; the connection is closed then.
    pub(crate) fn log_in(
        &self,
        Login { principal, in_every_tenant, revocation, .. }: Login,
        broker: &Broker,
        lifetime: Option<Duration>,
    ) -> Result<(), ListenerFull> {
        let broker = broker.of(&principal, in_every_tenant);
        let expires_at = lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime));
        *self.session.lock() = LoginSession { principal: Some(principal), revocation, broker, expires_at };
        self.login_changed.notify_one();
        self.enter()
    }

    /// Counts the connection for its tenant. One that the listener has no room for is closed.
    fn enter(&self) -> Result<(), ListenerFull> {
        let tenant = self.tenant();
        self.pending_login.succeeded(&tenant).inspect_err(|full| {
            tracing::warn!(peer = %self.peer, %tenant, why = %full, "kafka: connection closed");
            self.refuse();
        })
    }

    /// The user of this connection if it is another than `principal`, in name or tenant.
    pub(crate) fn other_user(&self, principal: &Principal) -> Option<String> {
        let session = self.session.lock();
        let user = session.user()?;
        ((&user.name, &user.tenant) != (&principal.name, &principal.tenant)).then(|| user.name.clone())
    }

    /// True if the login must be repeated before other requests.
    pub(crate) fn has_session_expired(&self) -> bool {
        self.session.lock().expires_at.is_some_and(|expires_at| Instant::now() >= expires_at)
    }

    /// True if the credentials of the login were withdrawn, or a login is required by now.
    pub(crate) fn has_login_ended(&self) -> bool {
        self.session.lock().revocation.as_ref().is_some_and(Revocation::is_revoked)
    }

    /// Completes when the credentials of the login are withdrawn.
    pub(crate) async fn login_ended(&self) -> ConnectionError {
        loop {
            let revocation = self.session.lock().revocation.clone();
            match revocation {
                None => self.login_changed.notified().await,
                Some(revocation) => tokio::select! {
                    () = revocation.revoked() => return ConnectionError::LoginEnded,
                    () = self.login_changed.notified() => {}
                },
            }
        }
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.session.lock().principal.is_some()
    }

    /// A request has come. Where nobody has to log in, it stands for the login.
    pub(crate) fn heard(&self) {
        if self.is_logged_in() {
            // It is closed if there is no room for it.
            let _ = self.enter();
        }
    }

    /// The principal, once there is one, and the broker as its tenant sees it.
    pub(crate) fn session(&self) -> (Option<Arc<Principal>>, Arc<Broker>) {
        let session = self.session.lock();
        (session.principal.clone(), Arc::clone(&session.broker))
    }

    /// The tenant of the principal.
    pub(crate) fn tenant(&self) -> TenantId {
        self.session.lock().broker.namespace.tenant.clone()
    }

    /// Logs once per connection that its client gets no records because the budget has no room.
    pub(crate) fn tell_lack_of_memory(&self, memory: &MemoryBudget) {
        if !self.peer_was_kept_waiting.swap(true, Ordering::Relaxed) {
            let (peer, setting, limit) = (self.peer, memory.setting(), memory.limit_bytes());
            tracing::warn!(%peer, "kafka: no room in {setting} = {limit} for records that are fetched; they wait");
        }
    }

    /// Stops reading requests for `wait`.
    fn mute(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut muted = self.muted_until.lock();
        *muted = (*muted).max(Some(until));
    }

    /// The end of the current throttling, if it is not over.
    pub(crate) fn muted_until(&self) -> Option<Instant> {
        self.muted_until.lock().filter(|until| *until > Instant::now())
    }

    /// True if an append waits for its transaction: those that come later have to wait behind it.
    pub(crate) fn has_waiting_append(&self) -> bool {
        let mut waiting = self.waiting_append.lock();
        let has_begun = |waiting: &mut oneshot::Receiver<()>| waiting.try_recv() != Err(TryRecvError::Empty);
        // Asked again after its end it would panic.
        waiting.take_if(has_begun);
        waiting.is_some()
    }

    /// The end of the append to wait for, and what ends the wait for this one when it is dropped.
    pub(crate) fn wait_behind(&self) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        let (begun, waiting) = oneshot::channel();
        (self.waiting_append.lock().replace(waiting), begun)
    }

    /// Lets `partition` ring the bell from now on.
    pub(crate) fn watch(&self, partition: &Arc<dyn KafkaPartition>) {
        let mut watched = self.watched.lock();
        let key = (partition.topic().id, partition.id().partition.0);
        if watched.len() < WATCHED_MAX && watched.insert(key) {
            partition.watch(&self.bell);
        }
    }
}

/// The context of one request.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) broker: Arc<Broker>,
    pub(crate) connection: Arc<ClientConnection>,
    /// The client id of the request header; empty if there is none.
    pub(crate) client_id: StrBytes,
    /// The version of the request, and so of its answer.
    pub(crate) version: i16,
    /// The size of a request that exceeded the limit and came without its records.
    pub(crate) oversized_bytes: Option<usize>,
    /// The principal; `None` only for requests before a login.
    pub(crate) principal: Option<Arc<Principal>>,
}

impl RequestContext {
    /// True if the principal has `role`.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.roles.has(role))
    }

    /// The roles of the principal.
    pub(crate) fn roles(&self) -> Roles {
        self.principal.as_ref().map_or(Roles::NONE, |principal| principal.roles)
    }

    /// The authorized operations of the principal on a topic that it sees.
    pub(crate) fn topic_operations(&self, topic: &Topic) -> i32 {
        self.principal.as_ref().map_or(0, |principal| authorized_operations::of_topic(principal, topic))
    }

    /// Refuses a principal without `role` to change or read topics.
    pub(crate) fn check(&self, role: Role) -> Result<(), ApiError> {
        self.check_or(role, ResponseError::TopicAuthorizationFailed)
    }

    /// As [`RequestContext::check`], in other words for the client's program.
    pub(crate) fn check_or(&self, role: Role, error: ResponseError) -> Result<(), ApiError> {
        if self.has(role) {
            return Ok(());
        }
        let name = self.principal.as_ref().map_or("", |principal| &principal.name);
        let role = format!("{role:?}").to_lowercase();
        Err(ApiError::new(error, format!("user '{name}' has not the role {role}, which this takes")))
    }

    /// Refuses to append to a topic that takes no records of this principal, whatever its roles.
    pub(crate) fn check_writable(&self, topic: &Topic) -> Result<(), ApiError> {
        if self.principal.as_ref().is_some_and(|principal| topic.takes_records_of(principal)) {
            return Ok(());
        }
        let whose = match topic.name.kind() {
            TopicKind::User => "administrators of the whole tenant only, as its records ask queries",
            _ => "Millstream only; it can be read",
        };
        let why = format!("topic '{}' is written by {whose}", self.broker.namespace.render(&topic.name));
        Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why))
    }

    /// Keeps a change of topics, or the attempt, in the audit trail.
    pub(crate) fn audit<T>(&self, action: &'static str, object: &str, outcome: &Result<T, ApiError>) {
        let (Some(trail), Some(principal)) = (&self.broker.audit, &self.principal) else { return };
        let name = if principal.name.is_empty() { "anonymous" } else { &principal.name };
        let outcome = match outcome {
            Ok(_) => "done".to_owned(),
            Err(refusal) => format!("refused ({:?})", refusal.error),
        };
        trail.record(AuditEvent {
            tenant: Some(principal.tenant.clone()),
            caller: format!("{name} ({})", self.connection.peer.ip()),
            listener: "kafka",
            action: action.to_owned(),
            object: object.chars().take(AUDITED_OBJECT_MAX_CHARS).collect(),
            outcome,
        });
    }

    /// Charges `bytes` to the client's and its tenant's account. If one of them exceeds its limit, nothing is read from this
    /// connection until it no longer does. Returns that time in ms.
    pub(crate) fn charge(&self, traffic: QuotaType, bytes: usize) -> i32 {
        let Some(excess) =
            self.broker.quotas.charge(traffic, &self.broker.namespace.tenant, self.client(), bytes as u64)
        else {
            return 0;
        };
        self.connection.mute(excess.wait);
        i32::try_from(excess.wait.as_millis()).unwrap_or(i32::MAX).max(1)
    }

    /// Refuses a request of an account that is already far over its limit. Clients that wait as the throttle time says do
    /// not get there; clients that reconnect instead do.
    pub(crate) fn check_excess(&self, traffic: QuotaType) -> Result<(), ConnectionError> {
        match self.broker.quotas.excess(traffic, &self.broker.namespace.tenant, self.client()) {
            Some(Excess { setting, rate, wait }) if wait > EXCESS_MAX => {
                Err(ConnectionError::OverQuota { setting, rate, wait_ms: wait.as_millis() })
            }
            _ => Ok(()),
        }
    }

    /// The account that usage counts for: the user, or all anonymous clients with the same client id.
    fn client(&self) -> &str {
        match &self.principal {
            Some(principal) if !principal.name.is_empty() => &principal.name,
            _ => &self.client_id,
        }
    }

    pub(crate) fn groups(&self) -> &Arc<group::GroupCoordinator> {
        &self.broker.groups
    }

    /// The caller for the group coordinator.
    pub(crate) fn member(&self) -> group::Caller {
        group::Caller {
            namespace: self.broker.namespace.clone(),
            roles: self.roles(),
            client_id: self.client_id.to_string(),
            client_host: self.connection.peer.ip().to_canonical().to_string(),
        }
    }

    /// Host and port under which this client is to reach this broker.
    pub(crate) fn address(&self) -> (StrBytes, i32) {
        let ReachedAddress { address, is_tls, server_name } = &self.connection.reached;
        let config = &self.broker.config;
        let advertised = if *is_tls { &config.advertised_tls } else { &config.advertised };
        let (host, port) = host_and_port(advertised).unwrap_or_else(|| {
            let host = server_name.clone().unwrap_or_else(|| address.ip().to_canonical().to_string());
            (host, address.port())
        });
        (StrBytes::from_string(host), i32::from(port))
    }
}
