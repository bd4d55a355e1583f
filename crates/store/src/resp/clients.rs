//! The connections: what each tells about itself, and the messages that wait for it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use millstream_types::MemoryBudget;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::resp::channels::SubscriptionKind;
use crate::resp::closed::{ClosedClients, ClosedFor};
use crate::resp::codec::RespVersion;
use crate::resp::command::CommandId;
use crate::resp::messages::{ChannelMessage, MessageQueue};
use crate::resp::shared::owned;

/// A client for which less waits is not slow, and is not closed to make room.
const SLOW_LEAST_BYTES: usize = 256 << 10;

/// A connection, as others see it.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) created_ms: i64,
    pub(crate) is_killed: AtomicBool,
    pub(crate) protocol: AtomicU8,
    pub(crate) last_ms: AtomicI64,
    /// Index of the last command, plus one.
    pub(crate) last_command: AtomicUsize,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) about: Mutex<About>,
    pub(crate) subscriptions: Mutex<Subscriptions>,
    messages: Mutex<MessageQueue>,
    wake: Notify,
    ended: Notify,
}

/// The properties that a client has told about itself, or been given.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub(crate) name: Bytes,
    pub(crate) client_library: Bytes,
    pub(crate) client_library_version: Bytes,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) database: u32,
    /// Commands that are queued; `None` outside MULTI.
    pub(crate) queued: Option<usize>,
    pub(crate) queued_bytes: usize,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
}

/// The channels and patterns that a client listens to.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) channels: HashSet<Bytes>,
    pub(crate) patterns: HashSet<Bytes>,
    /// Memory of the names, here and in the tenant's table.
    pub(crate) bytes: usize,
}

/// Memory of a subscription beside its name, here and in the tenant's table.
const SUBSCRIPTION_BYTES: usize = 256;

impl Subscriptions {
    fn of(&mut self, kind: SubscriptionKind) -> &mut HashSet<Bytes> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    /// Adds a subscription. `false` if it is there already.
    pub(crate) fn add(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let is_new = self.of(kind).insert(owned(name));
        if is_new {
            self.bytes += Self::bytes_of(name);
        }
        is_new
    }

    /// Removes a subscription. `false` if there was none.
    pub(crate) fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let was_there = self.of(kind).remove(name);
        if was_there {
            self.bytes -= Self::bytes_of(name);
        }
        was_there
    }

    fn bytes_of(name: &[u8]) -> usize {
        2 * name.len() + SUBSCRIPTION_BYTES
    }

    pub(crate) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}

impl ConnectedClient {
    pub(crate) fn protocol(&self) -> RespVersion {
        if self.protocol.load(Relaxed) == 3 { RespVersion::V3 } else { RespVersion::V2 }
    }

    /// Closes the connection, also while it sends. No message goes to it any more.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Relaxed);
        self.messages.lock().clear();
        self.wake.notify_one();
        self.ended.notify_one();
    }

    /// Closes the connection for what the client does.
    pub(crate) fn close_for(&self, why: &ClosedFor, closed: &ClosedClients) {
        closed.tell(self.peer, why);
        self.kill();
    }

    /// Leaves a message for the client. `false` if it is closed, perhaps just now because it does not keep up.
    pub(crate) fn send(&self, message: &ChannelMessage, closed: &ClosedClients) -> bool {
        if self.is_killed.load(Relaxed) {
            return false;
        }
        let pushed = self.messages.lock().push(message);
        match pushed {
            Ok(()) => self.wake.notify_one(),
            Err(ref why) => self.close_for(why, closed),
        }
        pushed.is_ok()
    }

    /// Takes the memory of further messages from `memory`, that of the tenant that the client speaks for now.
    pub(crate) fn draw_messages_on(&self, memory: &MemoryBudget) {
        self.messages.lock().draw_on(memory);
    }

    /// Bytes of the messages that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.messages.lock().bytes()
    }

    /// Moves waiting messages to the end of `out`, until that is long enough to be sent. A long payload is returned, and
    /// is to be sent behind `out`.
    pub(crate) fn take_messages(&self, out: &mut Vec<u8>) -> Option<Bytes> {
        self.messages.lock().take_some(self.protocol(), out)
    }

    /// Moves all waiting messages to the end of `out`.
    pub(crate) fn take_all_messages(&self, out: &mut Vec<u8>) {
        self.messages.lock().take_all(self.protocol(), out);
    }

    /// Resolves when there is a message, or the connection shall close.
    pub(crate) async fn woken(&self) {
        if self.waiting_bytes() == 0 {
            self.wake.notified().await;
        }
    }

    /// Resolves when the connection shall close.
    pub(crate) async fn killed(&self) {
        while !self.is_killed.load(Relaxed) {
            self.ended.notified().await;
        }
    }

    /// The line of CLIENT LIST, without its end.
    pub(crate) fn line(&self, now_ms: i64, buffered_bytes: usize) -> String {
        let About {
            name,
            client_library,
            client_library_version,
            user,
            database,
            queued,
            queued_bytes,
            no_evict,
            no_touch,
            ..
        } = self.about.lock().clone();
        let (channels, patterns) = {
            let subscriptions = self.subscriptions.lock();
            (subscriptions.channels.len(), subscriptions.patterns.len())
        };
        let seconds = |since_ms: i64| (now_ms - since_ms).max(0) / 1_000;
        let mut flags = String::new();
        for (is_set, letter) in
            [(channels + patterns > 0, 'P'), (queued.is_some(), 'x'), (no_evict, 'e'), (no_touch, 'T')]
        {
            flags.extend(is_set.then_some(letter));
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let command = self.last_command.load(Relaxed).checked_sub(1).and_then(CommandId::at);
        let waiting = self.waiting_bytes();
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={database} sub={channels} psub={patterns} \
             ssub=0 multi={} qbuf={buffered_bytes} qbuf-free=0 argv-mem=0 multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll=0 \
             omem={waiting} tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            String::from_utf8_lossy(&name),
            seconds(self.created_ms),
            seconds(self.last_ms.load(Relaxed)),
            queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX)),
            buffered_bytes + queued_bytes + waiting,
            command.map_or("NULL", CommandId::full_name),
            user.as_deref().unwrap_or("(unauthenticated)"),
            self.protocol().number(),
            String::from_utf8_lossy(&client_library),
            String::from_utf8_lossy(&client_library_version),
        )
    }
}

/// All open connections, by their client id.
#[derive(Debug)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ConnectedClient>>>,
    /// The budget of the messages that wait for them.
    messages: MemoryBudget,
}

impl Clients {
    pub(crate) fn new(messages: MemoryBudget) -> Self {
        Self { last_id: AtomicU64::new(0), open: Mutex::default(), messages }
    }

    /// The budget of messages that wait.
    pub(crate) fn messages(&self) -> &MemoryBudget {
        &self.messages
    }

    pub(crate) fn open(&self, peer: SocketAddr, local: SocketAddr, now_ms: i64) -> Arc<ConnectedClient> {
        let client = Arc::new(ConnectedClient {
            id: self.last_id.fetch_add(1, Relaxed) + 1,
            peer,
            local,
            created_ms: now_ms,
            is_killed: AtomicBool::new(false),
            protocol: AtomicU8::new(2),
            last_ms: AtomicI64::new(now_ms),
            last_command: AtomicUsize::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            about: Mutex::default(),
            subscriptions: Mutex::default(),
            messages: Mutex::new(MessageQueue::new(&self.messages)),
            wake: Notify::new(),
            ended: Notify::new(),
        });
        self.open.lock().insert(client.id, Arc::clone(&client));
        client
    }

    pub(crate) fn close(&self, id: u64) {
        self.open.lock().remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Closes the connections whose last request came longer ago than the time of their tenant, if that has one, but for
    /// those that listen to channels.
    pub(crate) fn kill_idle(&self, timeouts_ms: &HashMap<Arc<str>, i64>, now_ms: i64) {
        let open = self.open.lock();
        let is_idle = |client: &&Arc<ConnectedClient>| {
            let timeout_ms = client.about.lock().tenant.as_ref().and_then(|tenant| timeouts_ms.get(tenant)).copied();
            timeout_ms.is_some_and(|timeout_ms| client.last_ms.load(Relaxed) < now_ms - timeout_ms)
        };
        let is_listening = |client: &ConnectedClient| client.subscriptions.lock().count() > 0;
        open.values().filter(is_idle).filter(|client| !is_listening(client)).for_each(|client| client.kill());
    }

    /// Closes those for which too much has waited for too long.
    pub(crate) fn close_slow(&self, now_ms: i64, closed: &ClosedClients) {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        for client in open {
            let bytes = client.messages.lock().too_slow(now_ms);
            if let Some(bytes) = bytes {
                client.close_for(&ClosedFor::UnreadForLong { bytes }, closed);
            }
        }
    }

    /// Closes the clients that hold most of a tenant's memory of messages: those for which at least half as much waits as for
    /// the slowest one. `false` if nobody is slow.
    pub(crate) fn close_slowest(&self, tenant: &Arc<str>, closed: &ClosedClients) -> bool {
        let open = self.of_tenant(tenant);
        let waiting: Vec<usize> = open.iter().map(|client| client.waiting_bytes()).collect();
        let most = waiting.iter().max().copied().unwrap_or(0);
        if most < SLOW_LEAST_BYTES {
            return false;
        }
        for (client, bytes) in open.iter().zip(waiting).filter(|(_, bytes)| *bytes >= most / 2) {
            client.close_for(&ClosedFor::NoMemory { bytes }, closed);
        }
        true
    }

    /// Connections opened since the start, closed ones included.
    pub(crate) fn total(&self) -> u64 {
        self.last_id.load(Relaxed)
    }

    /// The connections of a tenant, in the order of their numbers.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Vec<Arc<ConnectedClient>> {
        let open = self.open.lock();
        open.values().filter(|client| client.about.lock().tenant.as_ref() == Some(tenant)).cloned().collect()
    }
}
