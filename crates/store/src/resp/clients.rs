//! The connections: what each tells about itself, and the messages that wait for it.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::resp::codec::RespVersion;
use crate::resp::command::CommandId;

/// Messages that may wait for a client that does not read them; then it is closed, as
/// Redis does by `client-output-buffer-limit pubsub`.
pub(crate) const MESSAGES_MAX_BYTES: usize = 32 << 20;

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
    messages: Mutex<Vec<u8>>,
    wake: Notify,
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
}

impl Subscriptions {
    pub(crate) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}

impl ConnectedClient {
    pub(crate) fn protocol(&self) -> RespVersion {
        if self.protocol.load(Relaxed) == 3 { RespVersion::V3 } else { RespVersion::V2 }
    }

    /// Closes the connection once it is looked at next.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Leaves an encoded message for the client. One that has too many is closed.
    pub(crate) fn send(&self, message: &[u8]) {
        let mut messages = self.messages.lock();
        if messages.len() + message.len() > MESSAGES_MAX_BYTES {
            *messages = Vec::new();
            drop(messages);
            return self.kill();
        }
        messages.extend_from_slice(message);
        drop(messages);
        self.wake.notify_one();
    }

    /// Moves the waiting messages to the end of `out`.
    pub(crate) fn take_messages(&self, out: &mut Vec<u8>) {
        let mut messages = self.messages.lock();
        if out.is_empty() {
            std::mem::swap(out, &mut messages);
        } else {
            out.append(&mut messages);
        }
    }

    /// Resolves when there is a message, or the connection shall close.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
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
        let waiting = self.messages.lock().len();
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
#[derive(Debug, Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ConnectedClient>>>,
}

impl Clients {
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
            messages: Mutex::default(),
            wake: Notify::new(),
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

    /// Closes the connections whose last request came before `since_ms`, but for those that listen to channels.
    pub(crate) fn kill_idle(&self, since_ms: i64) {
        let open = self.open.lock();
        let is_idle = |client: &&Arc<ConnectedClient>| client.last_ms.load(Relaxed) < since_ms;
        let is_listening = |client: &ConnectedClient| client.subscriptions.lock().count() > 0;
        open.values().filter(is_idle).filter(|client| !is_listening(client)).for_each(|client| client.kill());
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
