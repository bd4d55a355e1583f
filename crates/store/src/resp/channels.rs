//! Who listens to which channel of a tenant.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::resp::clients::ConnectedClient;
use crate::resp::codec::{ReplyWriter, RespVersion};
use crate::resp::glob;

/// The subscribers of channels and patterns.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    channels: HashMap<Bytes, Vec<Arc<ConnectedClient>>>,
    patterns: HashMap<Bytes, Vec<Arc<ConnectedClient>>>,
}

/// A subscription is for one channel, or for all channels that match a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
}

impl Tables {
    fn of(&mut self, kind: SubscriptionKind) -> &mut HashMap<Bytes, Vec<Arc<ConnectedClient>>> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }
}

impl Channels {
    /// Adds a subscription that is not there yet.
    pub(crate) fn add(&self, kind: SubscriptionKind, name: &Bytes, client: &Arc<ConnectedClient>) {
        // A slice of the receive buffer would hold all of it.
        let name = Bytes::copy_from_slice(name);
        self.0.lock().of(kind).entry(name).or_default().push(Arc::clone(client));
    }

    pub(crate) fn remove(&self, kind: SubscriptionKind, name: &[u8], client: &Arc<ConnectedClient>) {
        let mut tables = self.0.lock();
        let table = tables.of(kind);
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.retain(|other| !Arc::ptr_eq(other, client));
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
    }

    /// Sends `message` to all who listen to `channel`, and returns how many did.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let tables = self.0.lock();
        let mut receivers = 0;
        if let Some(subscribers) = tables.channels.get(channel) {
            let mut encoded = Encoded::default();
            let parts = [&b"message"[..], channel, message];
            subscribers.iter().for_each(|client| client.send(encoded.of(client.protocol(), &parts)));
            receivers += subscribers.len();
        }
        for (pattern, subscribers) in &tables.patterns {
            if glob::matches(pattern, channel) {
                let mut encoded = Encoded::default();
                let parts = [&b"pmessage"[..], pattern, channel, message];
                subscribers.iter().for_each(|client| client.send(encoded.of(client.protocol(), &parts)));
                receivers += subscribers.len();
            }
        }
        receivers
    }

    /// Channels with subscribers that match `pattern`.
    pub(crate) fn active(&self, pattern: Option<&Bytes>) -> Vec<Bytes> {
        let tables = self.0.lock();
        let matching = |channel: &&Bytes| pattern.is_none_or(|pattern| glob::matches(pattern, channel));
        tables.channels.keys().filter(matching).cloned().collect()
    }

    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.0.lock().channels.get(channel).map_or(0, Vec::len)
    }

    /// Number of channels and of patterns.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let tables = self.0.lock();
        (tables.channels.len(), tables.patterns.len())
    }
}

/// A message, encoded once for each version of the protocol that a subscriber speaks.
#[derive(Debug, Default)]
struct Encoded {
    two: Vec<u8>,
    three: Vec<u8>,
}

impl Encoded {
    fn of(&mut self, protocol: RespVersion, parts: &[&[u8]]) -> &[u8] {
        let bytes = match protocol {
            RespVersion::V2 => &mut self.two,
            RespVersion::V3 => &mut self.three,
        };
        if bytes.is_empty() {
            let mut reply = ReplyWriter::new(bytes, protocol);
            reply.push(parts.len());
            parts.iter().for_each(|part| reply.bulk(part));
        }
        bytes
    }
}
