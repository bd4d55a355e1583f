//! The table of connected clients: who is connected, and the way to end a connection.
//!
//! A connection enters the table after its login and leaves it when its [`LiveConnection`] is dropped. The table keeps what
//! stays the same; the figures of a connection are read from its own state when somebody asks, so a message costs nothing.
//!
//! An entry takes about half a kibibyte, and at most one more for its names. It counts as part of its connection: over AMQP
//! of the memory that a connection is charged for, over MQTT beside the state that a client has in any case.
//!
//! Invariants
//! - An id names one connection: it is not used again, neither by this process nor by the next one.
//! - A connection is in the table of one tenant at a time.
//!
//! Not here: the limits and counts of connections (`connections.rs`, `mqtt/adapter.rs`).

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use millstream_types::{TenantId, WallClock};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Topic filters of a client that are listed, and their bytes; the others are counted.
const FILTERS_LISTED_MAX: usize = 100;
const FILTERS_LISTED_MAX_BYTES: usize = 8 << 10;
/// Characters of a name that are kept. A client may choose one of 64 KiB.
const NAME_MAX_CHARS: usize = 256;

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Mqtt,
    Amqp,
}

impl ClientProtocol {
    pub(crate) const ALL: [Self; 2] = [Self::Mqtt, Self::Amqp];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Amqp => "amqp",
        }
    }
}

/// What a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientRole {
    Device,
    Application,
}

impl ClientRole {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Application => "application",
        }
    }
}

/// What stays the same while a client is connected.
#[derive(Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) protocol: ClientProtocol,
    pub(crate) address: SocketAddr,
    pub(crate) role: ClientRole,
    /// The name that the client has logged in with; `None` without a login.
    pub(crate) login: Option<Box<str>>,
    /// The device that the client is, if it has logged in as one.
    pub(crate) device: Option<Box<str>>,
}

/// Reads the figures of a connection from its own state.
pub(crate) trait ReadFigures: Send + Sync {
    fn figures(&self) -> Figures;
}

/// The figures of a connection at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Figures {
    Mqtt {
        subscriptions: ListedFilters,
        /// Messages that wait for the client.
        queued: usize,
        /// Messages that were sent and not acknowledged.
        in_flight: usize,
    },
    Amqp {
        sessions: usize,
        links: usize,
        /// Deliveries that were sent and not settled.
        in_flight: usize,
    },
}

/// The topic filters of a client: the first ones by name, and the number of all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedFilters {
    pub(crate) listed: Vec<Box<str>>,
    pub(crate) total: usize,
}

impl ListedFilters {
    pub(crate) fn of<'a>(filters: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<&str> = filters.collect();
        all.sort_unstable();
        let mut bytes = 0;
        let listed = all.iter().take(FILTERS_LISTED_MAX).take_while(|filter| {
            bytes += filter.len();
            bytes <= FILTERS_LISTED_MAX_BYTES
        });
        Self { listed: listed.map(|filter| (*filter).into()).collect(), total: all.len() }
    }
}

/// The connected clients of all tenants.
pub(crate) struct ConnectionTable {
    wall: Arc<dyn WallClock>,
    /// The first part of every id of this process.
    process: u32,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    /// The number of the last connection.
    last: u64,
    /// Connections by their numbers, which ascend with the time at which they began.
    tenants: HashMap<TenantId, BTreeMap<u64, Arc<ConnectionEntry>>>,
}

/// A connection in the table.
pub(crate) struct ConnectionEntry {
    pub(crate) facts: ConnectionFacts,
    /// The client's own name for itself, once it has said that.
    client_id: OnceLock<Box<str>>,
    /// When it entered, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) since_ms: i64,
    figures: Arc<dyn ReadFigures>,
    end: Arc<Notify>,
}

impl ConnectionEntry {
    pub(crate) fn client_id(&self) -> Option<&str> {
        self.client_id.get().map(|name| &**name)
    }

    pub(crate) fn figures(&self) -> Figures {
        self.figures.figures()
    }
}

/// A connection as it is listed.
pub(crate) struct ListedConnection {
    pub(crate) id: String,
    pub(crate) entry: Arc<ConnectionEntry>,
}

/// The connections that somebody asks for.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFilter {
    pub(crate) protocol: Option<ClientProtocol>,
    login: Option<Box<str>>,
}

impl ConnectionFilter {
    /// Asks for those that have logged in with this name.
    pub(crate) fn set_login(&mut self, name: &str) {
        self.login = Some(cut(name));
    }

    fn is_for_all(&self) -> bool {
        self.protocol.is_none() && self.login.is_none()
    }

    fn matches(&self, facts: &ConnectionFacts) -> bool {
        let is_named = || self.login.is_none() || self.login == facts.login;
        self.protocol.is_none_or(|protocol| protocol == facts.protocol) && is_named()
    }
}

impl ConnectionTable {
    pub(crate) fn new(wall: Arc<dyn WallClock>) -> Arc<Self> {
        Arc::new(Self { wall, process: fastrand::u32(..), state: Mutex::default() })
    }

    /// Enters a client that has logged in; it is in the table until the guard is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        tenant: &TenantId,
        mut facts: ConnectionFacts,
        figures: Arc<dyn ReadFigures>,
    ) -> LiveConnection {
        facts.login = facts.login.as_deref().map(cut);
        let mut state = self.state.lock();
        let entry = Arc::new(ConnectionEntry {
            facts,
            client_id: OnceLock::new(),
            since_ms: self.wall.now_ms(),
            figures,
            end: Arc::default(),
        });
        state.last += 1;
        let number = state.last;
        state.tenants.entry(tenant.clone()).or_default().insert(number, Arc::clone(&entry));
        drop(state);
        LiveConnection { table: Arc::clone(self), tenant: tenant.clone(), number, entry }
    }

    /// Number of the tenant's connections.
    pub(crate) fn count(&self, tenant: &TenantId) -> usize {
        self.state.lock().tenants.get(tenant).map_or(0, BTreeMap::len)
    }

    /// The tenant's connections that match, the oldest first: `size` of them from `offset` on, and the number of all.
    pub(crate) fn page(
        &self,
        tenant: &TenantId,
        filter: &ConnectionFilter,
        offset: usize,
        size: usize,
    ) -> (usize, Vec<ListedConnection>) {
        let listed = |(number, entry): (&u64, &Arc<ConnectionEntry>)| ListedConnection {
            id: format!("{:08x}-{number}", self.process),
            entry: Arc::clone(entry),
        };
        let state = self.state.lock();
        let Some(all) = state.tenants.get(tenant) else { return (0, Vec::new()) };
        if filter.is_for_all() {
            return (all.len(), all.iter().skip(offset).take(size).map(listed).collect());
        }
        let mut total = 0;
        let mut page = Vec::new();
        for one in all.iter().filter(|(_, entry)| filter.matches(&entry.facts)) {
            if total >= offset && page.len() < size {
                page.push(listed(one));
            }
            total += 1;
        }
        (total, page)
    }

    /// Tells a connection of the tenant to end; false if the tenant has none with this id.
    pub(crate) fn end(&self, tenant: &TenantId, id: &str) -> bool {
        let Some((process, number)) = id.split_once('-') else { return false };
        if process != format!("{:08x}", self.process) {
            return false;
        }
        let Ok(number) = number.parse::<u64>() else { return false };
        let state = self.state.lock();
        let known = state.tenants.get(tenant).and_then(|all| all.get(&number));
        known.inspect(|entry| entry.end.notify_one()).is_some()
    }
}

impl TableState {
    fn remove(&mut self, tenant: &TenantId, number: u64) {
        let Some(all) = self.tenants.get_mut(tenant) else { return };
        all.remove(&number);
        if all.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

/// A connection's place in the table; given up when dropped.
pub(crate) struct LiveConnection {
    table: Arc<ConnectionTable>,
    tenant: TenantId,
    number: u64,
    entry: Arc<ConnectionEntry>,
}

impl LiveConnection {
    /// Resolves when an operator ends the connection.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let end = Arc::clone(&self.entry.end);
        async move { end.notified().await }
    }

    /// The client's own name for itself. Only the first one counts.
    pub(crate) fn set_client_id(&self, name: &str) {
        self.entry.client_id.get_or_init(|| cut(name));
    }

    /// The client speaks on behalf of another tenant from now on.
    pub(crate) fn move_to(&mut self, tenant: &TenantId) {
        if self.tenant == *tenant {
            return;
        }
        let mut state = self.table.state.lock();
        state.remove(&self.tenant, self.number);
        state.tenants.entry(tenant.clone()).or_default().insert(self.number, Arc::clone(&self.entry));
        self.tenant = tenant.clone();
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.table.state.lock().remove(&self.tenant, self.number);
    }
}

fn cut(name: &str) -> Box<str> {
    name.char_indices().nth(NAME_MAX_CHARS).map_or(name, |(end, _)| &name[..end]).into()
}

#[cfg(test)]
mod tests {
    use millstream_types::SystemClock;

    use super::*;

    struct NoFigures;

    impl ReadFigures for NoFigures {
        fn figures(&self) -> Figures {
            Figures::Amqp { sessions: 0, links: 0, in_flight: 0 }
        }
    }

    fn facts(protocol: ClientProtocol, login: &str) -> ConnectionFacts {
        ConnectionFacts {
            protocol,
            address: SocketAddr::from(([127, 0, 0, 1], 9)),
            role: ClientRole::Application,
            login: (!login.is_empty()).then(|| login.into()),
            device: None,
        }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn connections_are_listed_by_page_and_filter_in_the_order_in_which_they_began() {
        use ClientProtocol::{Amqp, Mqtt};
        let table = ConnectionTable::new(Arc::new(SystemClock::default()));
        let t = tenant("t");
        let rows = [(Mqtt, "a"), (Amqp, "b"), (Mqtt, ""), (Amqp, "a"), (Mqtt, "a")];
        let mut live: Vec<_> =
            rows.map(|(protocol, login)| table.enter(&t, facts(protocol, login), Arc::new(NoFigures))).into();
        live.iter().enumerate().for_each(|(at, live)| live.set_client_id(&at.to_string()));
        let found = |protocol, login: Option<&str>, offset, size| {
            let filter = ConnectionFilter { protocol, login: login.map(Into::into) };
            let (total, page) = table.page(&t, &filter, offset, size);
            (total, page.iter().map(|one| one.entry.client_id().unwrap().to_owned()).collect::<String>())
        };
        for (protocol, login, offset, size, total, expected) in [
            (None, None, 0, 9, 5, "01234"),
            (None, None, 1, 2, 5, "12"),
            (None, None, 9, 2, 5, ""),
            (Some(Mqtt), None, 0, 9, 3, "024"),
            (Some(Mqtt), None, 1, 1, 3, "2"),
            (Some(Amqp), Some("a"), 0, 9, 1, "3"),
            (None, Some("a"), 0, 2, 3, "03"),
            (None, Some(""), 0, 9, 0, ""),
        ] {
            assert_eq!(found(protocol, login, offset, size), (total, expected.to_owned()), "{protocol:?} {login:?}");
        }
        live.remove(1);
        assert_eq!(found(None, None, 0, 9), (4, "0234".to_owned()));
        drop(live);
        assert_eq!((table.count(&t), table.state.lock().tenants.len()), (0, 0));
    }

    #[tokio::test]
    async fn an_id_ends_its_connection_alone_and_only_in_its_tenant() {
        let table = ConnectionTable::new(Arc::new(SystemClock::default()));
        let (t, u) = (tenant("t"), tenant("u"));
        let mut live = ["a", "b"].map(|login| table.enter(&t, facts(ClientProtocol::Mqtt, login), Arc::new(NoFigures)));
        let id = table.page(&t, &ConnectionFilter::default(), 0, 9).1[1].id.clone();
        let other_process = format!("{:08x}-{}", table.process.wrapping_add(1), live[1].number);
        for wrong in ["", "x", "-", &other_process, &format!("{id}0"), &format!(" {id}")] {
            assert!(!table.end(&t, wrong), "{wrong}");
        }
        assert!(!table.end(&u, &id), "it is of another tenant");
        assert!(table.end(&t, &id));
        live[1].ended().await;
        let is_told = tokio::time::timeout(std::time::Duration::ZERO, live[0].ended()).await.is_ok();
        assert!(!is_told, "the other one goes on");

        live[1].move_to(&u);
        assert!(!table.end(&t, &id) && table.end(&u, &id), "it has moved");
        assert_eq!((table.count(&t), table.count(&u)), (1, 1));
        drop(live);
        assert_eq!(table.state.lock().tenants.len(), 0);
    }

    #[test]
    fn names_and_filters_of_any_size_are_listed_in_part() {
        assert_eq!(cut(&"ä".repeat(300)).chars().count(), NAME_MAX_CHARS);
        assert_eq!(&*cut("short"), "short");
        let many: Vec<String> = (0..300).map(|n| format!("{n:03}")).collect();
        let filters = ListedFilters::of(many.iter().rev().map(String::as_str));
        assert_eq!((filters.listed.len(), filters.total, &*filters.listed[99]), (100, 300, "099"));
        let long: Vec<String> = (0..9).map(|n| format!("{n}{}", "x".repeat(1_023))).collect();
        let filters = ListedFilters::of(long.iter().map(String::as_str));
        assert_eq!((filters.listed.len(), filters.total), (8, 9));
    }
}
