//! Who listens to which channel of a tenant.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use millstream_types::MemoryBudget;
use parking_lot::Mutex;

use crate::resp::clients::ConnectedClient;
use crate::resp::closed::{ClosedClients, ClosedFor};
use crate::resp::glob;
use crate::resp::messages::{ChannelMessage, NoMemory, Payload};

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

    /// The subscribers of `channel`, and those of each pattern that it matches.
    fn listening(&self, channel: &[u8]) -> impl Iterator<Item = (Option<&Bytes>, &Vec<Arc<ConnectedClient>>)> {
        let by_name = self.channels.get(channel).map(|subscribers| (None, subscribers));
        let matching = self.patterns.iter().filter(move |(pattern, _)| glob::matches(pattern, channel));
        by_name.into_iter().chain(matching.map(|(pattern, subscribers)| (Some(pattern), subscribers)))
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

    /// Sends `payload` to all who listen to `channel`, or to nobody if there is no memory for the messages. Returns how many
    /// took it.
    pub(crate) fn publish(
        &self,
        channel: &[u8],
        payload: &[u8],
        memory: &MemoryBudget,
        closed: &ClosedClients,
    ) -> Result<usize, NoMemory> {
        let tables = self.0.lock();
        let mut listening = tables.listening(channel).peekable();
        if listening.peek().is_none() {
            return Ok(0);
        }
        let payload = Payload::new(payload, memory)?;
        let message = |(pattern, subscribers): (Option<&Bytes>, _)| {
            let message = match pattern {
                None => ChannelMessage::new(&[b"message", channel], &payload, memory),
                Some(pattern) => ChannelMessage::new(&[b"pmessage", pattern, channel], &payload, memory),
            };
            message.map(|message| (message, subscribers))
        };
        let messages: Vec<(ChannelMessage, &Vec<_>)> = listening.map(message).collect::<Result<_, _>>()?;
        let receivers = |(message, subscribers): &(ChannelMessage, &Vec<Arc<ConnectedClient>>)| {
            subscribers.iter().filter(|client| client.send(message, closed)).count()
        };
        Ok(messages.iter().map(receivers).sum())
    }

    /// Closes all who listen to `channel`: they would miss a message.
    pub(crate) fn close_listeners(&self, channel: &[u8], closed: &ClosedClients) {
        let tables = self.0.lock();
        for client in tables.listening(channel).flat_map(|(_, subscribers)| subscribers) {
            client.close_for(&ClosedFor::NoMemory { bytes: client.waiting_bytes() }, closed);
        }
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
