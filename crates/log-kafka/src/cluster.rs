//! The brokers of the cluster and the connections to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::{Request, StrBytes};
use millstream_kafka_wire::CallError;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::config::EngineConfig;
use crate::connection::BrokerConnection;
use crate::contact::Contact;
use crate::health::BrokerHealth;

const METADATA_VERSION: i16 = 12;

/// The purpose of a connection. A broker answers the requests of one connection in order, so a fetch that waits for
/// records would hold up everything behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Appends.
    Produce,
    /// Fetches that wait for the next records.
    Tail,
    /// Reads of records that exist.
    Read,
    /// Topics, offsets, producers.
    Control,
}

/// The broker that is asked for things that every broker knows.
#[derive(Debug, Default)]
struct Turn(AtomicUsize);

impl Turn {
    fn current(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The broker of this turn does not answer: it is the next one's, also if several calls find that at a time.
    fn is_over(&self, turn: usize) {
        let _ = self.0.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A broker that belongs to the cluster.
#[derive(Debug)]
struct KnownBroker {
    /// `None` if it was away since this process began.
    address: Option<String>,
    /// The brokers told of it when they were asked last.
    is_listed: bool,
    contact: Arc<Contact>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<BrokerConnection>>>>;

/// The brokers of the cluster, as far as they are known, and a connection of each purpose to each.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<EngineConfig>,
    brokers: Mutex<BTreeMap<i32, KnownBroker>>,
    connections: Mutex<HashMap<(i32, Purpose), Slot>>,
    turn: Turn,
    pub(crate) contact: Arc<Contact>,
}

impl Cluster {
    pub(crate) fn new(config: Arc<EngineConfig>) -> Self {
        Self {
            brokers: Mutex::default(),
            connections: Mutex::default(),
            turn: Turn::default(),
            contact: Arc::new(Contact::new(config.session_timeout)),
            config,
        }
    }

    /// Connects to a broker and logs in.
    async fn connect(&self, address: &str, contact: &Arc<Contact>) -> Result<Arc<BrokerConnection>, CallError> {
        let (security, patience) = (&self.config.security, self.config.request_timeout);
        Ok(Arc::new(BrokerConnection::open(address, security, patience, Arc::clone(contact)).await?))
    }

    /// A connection to the broker of this id.
    pub(crate) async fn broker(&self, id: i32, purpose: Purpose) -> Result<Arc<BrokerConnection>, CallError> {
        let slot = Arc::clone(self.connections.lock().entry((id, purpose)).or_default());
        let mut slot = slot.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let (address, contact) =
            self.listed(id).ok_or_else(|| CallError::Unsent(format!("broker {id} is not known")))?;
        let open = self.connect(&address, &contact).await?;
        *slot = Some(Arc::clone(&open));
        Ok(open)
    }

    fn listed(&self, id: i32) -> Option<(String, Arc<Contact>)> {
        let brokers = self.brokers.lock();
        let known = brokers.get(&id).filter(|known| known.is_listed)?;
        Some((known.address.clone()?, Arc::clone(&known.contact)))
    }

    /// The ids of the brokers of which the brokers told last.
    pub(crate) fn ids(&self) -> Vec<i32> {
        self.brokers.lock().iter().filter(|(_, known)| known.is_listed).map(|(id, _)| *id).collect()
    }

    /// The brokers that belong to the cluster, also those that are away.
    pub(crate) fn health(&self) -> Vec<BrokerHealth> {
        let health = |(&id, known): (&i32, &KnownBroker)| BrokerHealth {
            id,
            address: known.address.clone(),
            silence: known.contact.silence(),
        };
        self.brokers.lock().iter().map(health).collect()
    }

    /// The name of a broker for people.
    pub(crate) fn name(&self, id: i32) -> String {
        let brokers = self.brokers.lock();
        match brokers.get(&id).and_then(|known| known.address.as_ref()) {
            Some(address) => format!("broker {id} at {address}"),
            None => format!("broker {id}"),
        }
    }

    /// Notes the brokers that have replicas. One that is not listed belongs to the cluster as long as it has any.
    pub(crate) fn have_replicas(&self, ids: &BTreeSet<i32>) {
        let mut brokers = self.brokers.lock();
        brokers.retain(|id, known| known.is_listed || ids.contains(id));
        for id in ids {
            brokers.entry(*id).or_insert_with(|| {
                let contact = Arc::new(Contact::of_broker(&self.contact));
                contact.missed();
                KnownBroker { address: None, is_listed: false, contact }
            });
        }
    }

    /// A connection to any broker, the one whose turn it is or the next one, and its turn.
    async fn any(&self) -> Result<(usize, Arc<BrokerConnection>), CallError> {
        let ids = self.ids();
        for _ in 0..ids.len() {
            let turn = self.turn.current();
            if let Ok(open) = self.broker(ids[turn % ids.len()], Purpose::Control).await {
                return Ok((turn, open));
            }
            self.turn.is_over(turn);
        }
        let mut last = CallError::Unsent("no broker is configured".to_owned());
        for address in &self.config.brokers {
            match self.connect(address, &self.contact).await {
                Ok(open) => return Ok((self.turn.current(), open)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Asks any broker once; the next call asks the next one if it does not answer.
    async fn ask_once<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, CallError> {
        let (turn, broker) = self.any().await?;
        let answer = broker.call(request, version).await;
        if answer.is_err() {
            self.turn.is_over(turn);
        }
        answer
    }

    /// Asks one broker after the other until `patience` has passed. For requests that may be repeated.
    pub(crate) async fn ask<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> Result<R::Response, CallError> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.ask_once(request, version).await;
            if answer.is_ok() || Instant::now() > deadline {
                return answer;
            }
            tokio::time::sleep(self.config.retry_backoff).await;
        }
    }

    /// The topics of these ids and where their partitions are; all topics if there is no list. Asks once, and learns the brokers'
    /// addresses.
    pub(crate) async fn metadata(&self, topics: Option<&[Uuid]>) -> Result<MetadataResponse, CallError> {
        let by_id = |id: &Uuid| MetadataRequestTopic::default().with_topic_id(*id).with_name(None);
        self.metadata_where(topics.map(|topics| topics.iter().map(by_id).collect())).await
    }

    /// The topic of this name, and where its partitions are.
    pub(crate) async fn metadata_of(&self, name: &str) -> Result<MetadataResponse, CallError> {
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        self.metadata_where(Some(vec![MetadataRequestTopic::default().with_name(Some(name))])).await
    }

    async fn metadata_where(&self, topics: Option<Vec<MetadataRequestTopic>>) -> Result<MetadataResponse, CallError> {
        let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
        let response = self.ask_once(&request, METADATA_VERSION).await?;
        let mut brokers = self.brokers.lock();
        brokers.values_mut().for_each(|known| known.is_listed = false);
        for broker in &response.brokers {
            let known = brokers.entry(broker.node_id.0).or_insert_with(|| {
                let contact = Arc::new(Contact::of_broker(&self.contact));
                KnownBroker { address: None, is_listed: true, contact }
            });
            known.is_listed = true;
            known.address = Some(format!("{}:{}", &*broker.host, broker.port));
        }
        brokers.values().filter(|known| !known.is_listed).for_each(|known| known.contact.missed());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_together_turn_to_the_next_broker_once() {
        let turn = Turn::default();
        let calls = [turn.current(); 3];
        calls.into_iter().for_each(|begun| turn.is_over(begun));
        assert_eq!(turn.current(), 1);
        turn.is_over(turn.current());
        assert_eq!(turn.current(), 2);
    }
}
