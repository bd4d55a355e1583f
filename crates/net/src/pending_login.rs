//! Connections before their login: a share of a listener's connections, each for a limited time.
//!
//! ```text
//!   accepted ──► waits for the client ──heard()──► is checked ──succeeded()──► logged in
//!                  │      ▲                            │                           │ displaced by another tenant's
//!                  │      └─────────restart()──────────┘                           ▼
//!                  ▼ overdue, or displaced by a newer one               ends, at the latest in a while
//!                closed
//! ```
//!
//! Invariants
//! - A connection is listed from its acceptance until its login or its end, and from then on counts for its tenant until its end.
//! - The list has at most `max` entries. One more displaces one of the network that has most: the oldest that is silent, or
//!   whose check takes long. Silent clients so keep nobody out, from one address or from many; and where many come at the same
//!   time, those that have begun are served before others begin.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millstream_types::{MemoryBudget, TenantId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::connections::Connections;
use crate::limits::{ConnectionLimits, LoginTimeout};
use crate::log_rate_limit::LogRateLimit;
use crate::metrics::{Counter, Gauge, Metrics};
use crate::tenant_connections::{ListenerFull, TenantConnections};

/// One in this many connections may be before its login.
const CONNECTIONS_PART: usize = 4;
/// And one in this many bytes of the memory budget may be theirs.
const MEMORY_PART: u64 = 8;
/// Most memory that one of them holds: what TLS keeps, and a small frame.
const CONNECTION_MAX_BYTES: u64 = 64 << 10;
/// A check that takes longer may be given up for a newer connection.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// All connections of a listener that have not logged in.
#[derive(Debug)]
pub(crate) struct PendingLogins {
    listener: &'static str,
    max: usize,
    timeout: LoginTimeout,
    listed: Mutex<Listed>,
    logged_in: TenantConnections<Arc<Entry>>,
    connections: Arc<Connections>,
    gauge: Gauge,
    overdue: Counter,
    displaced: Counter,
    log_limit: LogRateLimit,
}

#[derive(Debug, Default)]
struct Listed {
    next: u64,
    count: usize,
    /// The oldest of each network first.
    by_network: HashMap<IpAddr, VecDeque<Arc<Entry>>>,
}

impl Listed {
    /// Takes out the connection that one more of `network` displaces; `None` if it has to wait for the others.
    fn displace(&mut self, network: IpAddr, now: Instant) -> Option<Arc<Entry>> {
        // Of networks that have as many, the one whose oldest came first.
        let age = |entries: &VecDeque<Arc<Entry>>| entries.front().map_or(0, |entry| u64::MAX - entry.number);
        let greediest = self.by_network.values().max_by_key(|entries| (entries.len(), age(entries)))?;
        let own = self.by_network.get(&network).map_or(0, VecDeque::len);
        let displaced = match greediest.iter().find(|entry| entry.may_be_displaced(now)) {
            Some(entry) => entry.clone(),
            None if greediest.len() > own + 1 => greediest.front()?.clone(),
            None => return None,
        };
        self.remove(&displaced);
        Some(displaced)
    }

    /// Returns false if it is not listed.
    fn remove(&mut self, entry: &Entry) -> bool {
        let Some(entries) = self.by_network.get_mut(&entry.network) else { return false };
        let Some(at) = entries.iter().position(|other| other.number == entry.number) else { return false };
        entries.remove(at);
        if entries.is_empty() {
            self.by_network.remove(&entry.network);
        }
        self.count -= 1;
        true
    }
}

impl PendingLogins {
    /// Those of a listener with these limits, which are among its `connections`.
    pub(crate) fn new(
        listener: &'static str,
        limits: &ConnectionLimits,
        connections: Arc<Connections>,
        metrics: &Metrics,
    ) -> Self {
        let of_memory = limits.memory.limit_bytes() / MEMORY_PART / CONNECTION_MAX_BYTES;
        let of_connections = limits.connections_max / CONNECTIONS_PART;
        let help = "Connections closed for want of a login.";
        let closed = |reason| {
            let labels = [("listener", listener), ("reason", reason)];
            metrics.counter("millstream_connections_without_login_closed_total", help, &labels)
        };
        Self {
            listener,
            max: of_connections.min(usize::try_from(of_memory).unwrap_or(usize::MAX)).max(1),
            timeout: limits.login_timeout,
            listed: Mutex::default(),
            logged_in: TenantConnections::new(limits.setting, limits.connections_max),
            connections,
            gauge: metrics.gauge(
                "millstream_connections_without_login",
                "Open connections that have not logged in.",
                &[("listener", listener)],
            ),
            overdue: closed("overdue"),
            displaced: closed("displaced"),
            log_limit: LogRateLimit::default(),
        }
    }

    /// Makes room for a connection of `peer`, which may displace another.
    pub(crate) fn make_room(&self, peer: IpAddr) -> Result<(), TooManyPending> {
        let mut listed = self.listed.lock();
        if listed.count < self.max {
            return Ok(());
        }
        let displaced = listed.displace(network(peer), Instant::now()).ok_or(TooManyPending { max: self.max })?;
        self.gauge.dec();
        displaced.phase.send_replace(Phase::Displaced);
        Ok(())
    }

    /// Lists the connection at `place` until the guard is dropped or it has logged in.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr, place: u64) -> PendingLoginGuard {
        let mut listed = self.listed.lock();
        let entry = Arc::new(Entry::new(self.clone(), listed.next, place, network(peer)));
        listed.next += 1;
        listed.count += 1;
        listed.by_network.entry(entry.network).or_default().push_back(entry.clone());
        self.gauge.inc();
        PendingLoginGuard(PendingLogin(entry))
    }

    /// Counts a connection that is closed for want of a login, and says so in the log.
    fn tell(&self, peer: SocketAddr, why: NoLogin) {
        match why {
            NoLogin::Overdue(_) => self.overdue.inc(),
            NoLogin::Displaced { .. } => self.displaced.inc(),
        }
        if let Some(left_out) = self.log_limit.admit(Instant::now()) {
            tracing::info!(listener = self.listener, %peer, %why, left_out, "connection closed before its login");
        }
    }

    fn remove(&self, entry: &Entry) {
        if self.listed.lock().remove(entry) {
            self.gauge.dec();
        }
    }
}

/// The addresses that count as one client: an IPv4 address, or the first 64 bits of an IPv6 address, which one client has
/// all of (RFC 6177).
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// As many connections as may be without a login have begun theirs.
#[derive(Debug)]
pub(crate) struct TooManyPending {
    pub(crate) max: usize,
}

#[derive(Debug)]
struct Entry {
    all: Arc<PendingLogins>,
    number: u64,
    /// The number of its place among all connections.
    place: u64,
    network: IpAddr,
    phase: watch::Sender<Phase>,
    /// False once the client has logged in.
    is_pending: AtomicBool,
    /// The tenant for which it counts since its login.
    tenant: Mutex<Option<TenantId>>,
}

impl Entry {
    fn new(all: Arc<PendingLogins>, number: u64, place: u64, network: IpAddr) -> Self {
        let phase = watch::Sender::new(Phase::Awaited(all.timeout.due()));
        Self { all, number, place, network, phase, is_pending: AtomicBool::new(true), tenant: Mutex::default() }
    }

    fn may_be_displaced(&self, now: Instant) -> bool {
        match *self.phase.borrow() {
            Phase::Awaited(_) => true,
            Phase::Checked(since) => now.duration_since(since) > CHECK_TIME,
            Phase::LoggedIn | Phase::GivingPlace | Phase::Displaced => false,
        }
    }

    /// Counts the connection for `tenant`, which may displace one of another.
    fn count_for(self: &Arc<Self>, tenant: &TenantId) -> Result<(), ListenerFull> {
        let mut counted_for = self.tenant.lock();
        if counted_for.is_some() {
            return Ok(());
        }
        let displaced = self.all.logged_in.enter(tenant, self.number, self.clone());
        let displaced = displaced.inspect_err(|_| self.all.connections.count_refused())?;
        *counted_for = Some(tenant.clone());
        drop(counted_for);
        if let Some(displaced) = displaced {
            displaced.phase.send_replace(Phase::GivingPlace);
            self.all.connections.end_soon(displaced.place);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client has to log in until then.
    Awaited(Instant),
    /// The client has said who it is, at that time; the protocol bounds how long its check takes.
    Checked(Instant),
    LoggedIn,
    /// It has logged in, and ends in favour of one of another tenant.
    GivingPlace,
    Displaced,
}

/// The login of one connection that has not logged in yet. A clone is of the same.
#[derive(Debug, Clone)]
pub struct PendingLogin(Arc<Entry>);

impl PendingLogin {
    /// A login that nobody waits for, for a protocol without a listener.
    pub fn unlisted() -> Self {
        let limits = ConnectionLimits {
            connections_max: usize::MAX,
            setting: "",
            connection_bytes: 0,
            memory: MemoryBudget::new("", 0),
            login_timeout: LoginTimeout { setting: "", limit_ms: 0 },
        };
        let metrics = Metrics::default();
        let all = PendingLogins::new("none", &limits, Arc::new(Connections::new("none", &metrics)), &metrics);
        Self(Arc::new(Entry::new(Arc::new(all), 0, 0, IpAddr::V4(Ipv4Addr::LOCALHOST))))
    }

    /// The client has said who it is. Its protocol bounds the time that the check takes. An atomic load after the login.
    pub fn heard(&self) {
        self.turn_to(Phase::Checked(Instant::now()));
    }

    /// The client has not logged in with what it said, or need not for that: its time begins again. An atomic load after the
    /// login.
    pub fn restart(&self) {
        self.turn_to(Phase::Awaited(self.0.all.timeout.due()));
    }

    /// The client has logged in for `tenant`. An atomic load from the second time on.
    ///
    /// # Errors
    /// [`ListenerFull`] if the listener has as many connections as it may have, and the tenant its share of them. The connection
    /// is without a login then, as before.
    pub fn succeeded(&self, tenant: &TenantId) -> Result<(), ListenerFull> {
        if self.0.is_pending.load(Relaxed) {
            self.0.count_for(tenant)?;
            if self.turn_to(Phase::LoggedIn) {
                self.0.is_pending.store(false, Relaxed);
                self.0.all.remove(&self.0);
            }
        }
        Ok(())
    }

    /// Resolves when the connection has to end in favour of one of another tenant. It is dropped two seconds later.
    pub async fn displaced(&self) {
        let mut phases = self.0.phase.subscribe();
        // The sender is in the entry.
        let _ = phases.wait_for(|phase| *phase == Phase::GivingPlace).await;
    }

    /// Returns false if that is too late: a login is not taken back, and a connection that is displaced is lost.
    fn turn_to(&self, next: Phase) -> bool {
        self.0.is_pending.load(Relaxed)
            && self.0.phase.send_if_modified(|phase| {
                let may_turn = !matches!(phase, Phase::LoggedIn | Phase::GivingPlace | Phase::Displaced);
                if may_turn {
                    *phase = next;
                }
                may_turn
            })
    }

    /// Waits for the login, or for the reason why the connection has to be closed for want of it.
    async fn outcome(&self) -> Result<(), NoLogin> {
        let mut phases = self.0.phase.subscribe();
        loop {
            let phase = *phases.borrow_and_update();
            let overdue = async {
                match phase {
                    Phase::Awaited(until) => sleep_until(until).await,
                    _ => pending().await,
                }
            };
            match phase {
                Phase::LoggedIn | Phase::GivingPlace => return Ok(()),
                Phase::Displaced => return Err(NoLogin::Displaced { max: self.0.all.max }),
                Phase::Awaited(_) | Phase::Checked(_) => tokio::select! {
                    // The entry lives as long as this future.
                    _ = phases.changed() => {}
                    () = overdue => return Err(NoLogin::Overdue(self.0.all.timeout)),
                },
            }
        }
    }
}

/// Lists a connection until it ends.
#[derive(Debug)]
pub(crate) struct PendingLoginGuard(PendingLogin);

impl PendingLoginGuard {
    pub(crate) fn login(&self) -> PendingLogin {
        self.0.clone()
    }

    /// Serves the connection of `peer` to its end, or closes it for want of a login.
    pub(crate) async fn serve(self, peer: SocketAddr, serving: impl Future<Output = ()>) {
        let mut serving = std::pin::pin!(serving);
        let outcome = tokio::select! {
            biased;
            () = serving.as_mut() => return,
            outcome = self.0.outcome() => outcome,
        };
        match outcome {
            Ok(()) => serving.await,
            Err(why) => self.0.0.all.tell(peer, why),
        }
    }
}

impl Drop for PendingLoginGuard {
    fn drop(&mut self) {
        let entry = &self.0.0;
        entry.all.remove(entry);
        if let Some(tenant) = entry.tenant.lock().take() {
            entry.all.logged_in.leave(&tenant, entry.number);
        }
    }
}

/// The reason why a connection is closed before its login.
#[derive(Debug, Clone, Copy)]
enum NoLogin {
    Overdue(LoginTimeout),
    Displaced { max: usize },
}

impl fmt::Display for NoLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overdue(LoginTimeout { setting, limit_ms }) => write!(f, "no login within {setting} = {limit_ms}"),
            Self::Displaced { max } => {
                write!(f, "a newer connection took its place: {max} may be without a login at the same time")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(connections_max: usize) -> Arc<PendingLogins> {
        let limits = ConnectionLimits {
            connections_max,
            setting: "tests.connections_max",
            connection_bytes: 0,
            memory: MemoryBudget::new("memory.budget_bytes", 1 << 30),
            login_timeout: LoginTimeout { setting: "login_timeout_ms", limit_ms: 600_000 },
        };
        let metrics = Metrics::default();
        Arc::new(PendingLogins::new("tests", &limits, Arc::new(Connections::new("tests", &metrics)), &metrics))
    }

    fn phase(guard: &PendingLoginGuard) -> Phase {
        *guard.0.0.phase.borrow()
    }

    #[test]
    fn a_failed_login_begins_the_time_again_and_a_login_or_displacement_is_not_taken_back() {
        let (logins, tenant) = (logins(4), TenantId::default());
        let first = logins.begin(Ipv4Addr::LOCALHOST.into(), 1);
        let Phase::Awaited(until) = phase(&first) else { panic!("{:?}", phase(&first)) };
        first.login().heard();
        assert!(matches!(phase(&first), Phase::Checked(_)));
        first.login().restart();
        assert!(matches!(phase(&first), Phase::Awaited(later) if later > until), "{:?}", phase(&first));
        first.login().succeeded(&tenant).unwrap();
        first.login().restart();
        assert_eq!(phase(&first), Phase::LoggedIn);

        let second = logins.begin(Ipv4Addr::LOCALHOST.into(), 2);
        logins.make_room(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(phase(&second), Phase::Displaced, "one has room");
        second.login().succeeded(&tenant).unwrap();
        assert_eq!(phase(&second), Phase::Displaced);
    }

    #[test]
    fn an_ipv6_network_of_64_bits_counts_as_one_client_and_a_mapped_address_as_ipv4() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("10.0.0.7"), of("10.0.0.8"));
    }
}
