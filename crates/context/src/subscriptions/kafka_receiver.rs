//! Sends notifications to topics of Kafka: connections to the brokers that lead their partitions, opened with the first
//! notification for them and closed after long idle time or a failure.
//!
//! A record is its own request, acknowledged by all replicas that are in sync; many are on their way on one connection. The
//! brokers tell where partitions are, so each of their addresses must be an allowed target, as those of the subscription.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka_wire::{CallError, Connection, Versions, log_in};
use millstream_outgoing::{Address, Failed, Outgoing, dial, tls_refused, tls_to};
use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, Record};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

use super::kafka_target::NotificationCluster;
use super::notification::KafkaMessage;

/// Versions of requests: names of topics, records in the form of Kafka 0.11 and later.
const METADATA_VERSIONS: RangeInclusive<i16> = 1..=8;
const PRODUCE_VERSIONS: RangeInclusive<i16> = 3..=9;
/// Largest answer of a broker: it tells of one topic, or of one record.
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// Time after which the partitions of a topic are asked for again, as for Kafka's own clients (`metadata.max.age.ms`).
const PLACES_MAX_AGE: Duration = Duration::from_secs(300);
/// Topics whose partitions are known at a time; names may be made by macros.
const TOPICS_MAX: usize = 1_000;
/// Brokers that are connected to at a time.
const BROKERS_MAX: usize = 256;
/// Pauses before the brokers are asked again for a topic that has no leader yet: the request may have created it.
const TOPIC_PAUSES_MS: [u64; 3] = [100, 300, 1_000];

/// A receiver: the brokers of one cluster, and a login.
pub(crate) struct KafkaReceiver {
    cluster: NotificationCluster,
    outgoing: Arc<Outgoing>,
    slots: Mutex<HashMap<Address, Slot>>,
    topics: Mutex<HashMap<String, Arc<TopicPlaces>>>,
    used: Mutex<Instant>,
    /// Limits the records that are on their way: each is copied for its request.
    permits: Semaphore,
}

/// The connection to a broker; the task that opens it holds the lock.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Broker>>>>;

struct Broker {
    address: Address,
    connection: Connection,
    metadata_version: i16,
    produce_version: i16,
}

/// The leaders of a topic's partitions, in their order.
struct TopicPlaces {
    leaders: Vec<Option<Address>>,
    known_at: Instant,
}

/// An attempt that failed.
enum Missed {
    /// Nothing was taken, and another attempt may find the leader elsewhere.
    Moved(Failed),
    Failed(Failed),
}

impl From<Failed> for Missed {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl KafkaReceiver {
    pub(crate) fn new(cluster: NotificationCluster, outgoing: Arc<Outgoing>, records_max: usize) -> Self {
        let (slots, topics, used) = (Mutex::default(), Mutex::default(), Mutex::new(Instant::now()));
        Self { cluster, outgoing, slots, topics, used, permits: Semaphore::new(records_max) }
    }

    /// Closes connections that were idle for `idle`, and forgets those that the brokers have closed; returns true if none is left.
    pub(crate) fn close_if_idle(&self, idle: Duration) -> bool {
        let mut slots = self.slots.lock();
        if self.used.lock().elapsed() >= idle {
            slots.clear();
        }
        let is_open = |open: &Option<Arc<Broker>>| open.as_ref().is_some_and(|open| !open.connection.is_closed());
        slots.retain(|_, slot| slot.try_lock().map_or(true, |open| is_open(&open)));
        slots.is_empty()
    }

    /// Makes one attempt; returns after the acknowledgement of all replicas.
    pub(crate) async fn send(&self, message: &KafkaMessage, made_ms: i64, timeout: Duration) -> Result<(), Failed> {
        let until = Instant::now() + timeout;
        let permit = timeout_at(until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Failed::refused("timeout: the brokers are busy with other notifications"));
        };
        *self.used.lock() = Instant::now();
        let missed = match self.try_send(message, made_ms, until).await {
            Err(Missed::Moved(_)) => {
                self.topics.lock().remove(&message.topic);
                self.try_send(message, made_ms, until).await
            }
            other => other,
        };
        missed.map_err(|missed| {
            self.topics.lock().remove(&message.topic);
            match missed {
                Missed::Moved(failed) | Missed::Failed(failed) => failed,
            }
        })
    }

    async fn try_send(&self, message: &KafkaMessage, made_ms: i64, until: Instant) -> Result<(), Missed> {
        let places = self.places(&message.topic, until).await?;
        let partition = message.place as usize % places.leaders.len();
        let Some(leader) = &places.leaders[partition] else {
            return Err(Missed::Moved(Failed::refused(format!("partition {partition} has no leader now"))));
        };
        let broker = self.broker(leader, until).await?;
        let request = produce_request(message, partition as i32, made_ms, until);
        let patience = until.saturating_duration_since(Instant::now());
        let answer = match broker.connection.call_within(&request, broker.produce_version, patience).await {
            Ok(answer) => answer,
            Err(error) => {
                self.close(&broker);
                return Err(match error {
                    CallError::Unsent(why) => Missed::Moved(Failed::unreached(why)),
                    CallError::Unanswered(why) => Missed::Failed(Failed::unknown(why)),
                });
            }
        };
        let told = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        match told {
            Some(told) if told.error_code == 0 => Ok(()),
            Some(told) => Err(judged(told.error_code, told.error_message.as_deref())),
            None => Err(Failed::unknown("the broker does not say whether it has the record").into()),
        }
    }

    /// The partitions of a topic, as the brokers told in the last minutes.
    async fn places(&self, topic: &str, until: Instant) -> Result<Arc<TopicPlaces>, Missed> {
        let known = self.topics.lock().get(topic).cloned();
        if let Some(known) = known.filter(|known| known.known_at.elapsed() < PLACES_MAX_AGE) {
            return Ok(known);
        }
        let mut pauses = TOPIC_PAUSES_MS.into_iter();
        loop {
            let found = self.ask_places(topic, until).await?;
            match found {
                Ok(places) => {
                    let places = Arc::new(places);
                    let mut topics = self.topics.lock();
                    if topics.len() >= TOPICS_MAX {
                        topics.clear();
                    }
                    topics.insert(topic.to_owned(), Arc::clone(&places));
                    return Ok(places);
                }
                Err(missed) => match (missed, pauses.next().map(Duration::from_millis)) {
                    (Missed::Moved(_), Some(pause)) if Instant::now() + pause < until => sleep(pause).await,
                    (missed, _) => return Err(missed),
                },
            }
        }
    }

    /// Asks one broker after the other until one answers: those that are connected first.
    async fn ask_places(&self, topic: &str, until: Instant) -> Result<Result<TopicPlaces, Missed>, Failed> {
        let connected: Vec<Address> = self.slots.lock().keys().cloned().collect();
        let mut last = Failed::unreached("no broker is known");
        let others = self.cluster.brokers.iter().filter(|broker| !connected.contains(broker));
        let all: Vec<&Address> = connected.iter().chain(others).collect();
        for (asked, address) in all.iter().copied().enumerate() {
            // One that does not answer leaves time for those behind it.
            let now = Instant::now();
            let until = now + until.saturating_duration_since(now) / (all.len() - asked) as u32;
            let broker = match self.broker(address, until).await {
                Ok(broker) => broker,
                Err(failed) => {
                    last = failed;
                    continue;
                }
            };
            let name = TopicName(StrBytes::from_string(topic.to_owned()));
            let asked = MetadataRequestTopic::default().with_name(Some(name));
            let request = MetadataRequest::default().with_topics(Some(vec![asked]));
            let patience = until.saturating_duration_since(Instant::now());
            match broker.connection.call_within(&request, broker.metadata_version, patience).await {
                Ok(answer) => return Ok(read_places(&answer, address.is_tls)),
                Err(error) => {
                    self.close(&broker);
                    last = Failed::unreached(error.to_string());
                }
            }
        }
        Err(last)
    }

    /// The connection to a broker; opens it if there is none.
    async fn broker(&self, address: &Address, until: Instant) -> Result<Arc<Broker>, Failed> {
        let slot = {
            let mut slots = self.slots.lock();
            if slots.len() >= BROKERS_MAX && !slots.contains_key(address) {
                return Err(Failed::refused(format!("more than {BROKERS_MAX} brokers lead partitions of its topics")));
            }
            Arc::clone(slots.entry(address.clone()).or_default())
        };
        let opened = timeout_at(until, async {
            let mut slot = slot.lock().await;
            if let Some(broker) = slot.as_ref().filter(|broker| !broker.connection.is_closed()) {
                return Ok(Arc::clone(broker));
            }
            let broker = Arc::new(self.open(address, until).await?);
            *slot = Some(Arc::clone(&broker));
            Ok(broker)
        });
        let opened = opened.await.unwrap_or_else(|_| Err(Failed::unreached("timeout: no connection to the broker")));
        opened.map_err(|failed| {
            let mut slots = self.slots.lock();
            // Those that wait for it have it still.
            if slots.get(address).is_some_and(|known| Arc::ptr_eq(known, &slot)) {
                slots.remove(address);
            }
            Failed { reason: format!("{}:{}: {}", address.host, address.port, failed.reason), ..failed }
        })
    }

    async fn open(&self, address: &Address, until: Instant) -> Result<Broker, Failed> {
        let socket = dial(address, &self.outgoing).await?;
        let patience = until.saturating_duration_since(Instant::now());
        let connection = if address.is_tls {
            let (session, name) = tls_to(address, &self.outgoing)?;
            let stream = TlsConnector::from(session).connect(name, socket).await.map_err(tls_refused)?;
            let (reader, writer) = tokio::io::split(stream);
            Connection::over(reader, writer, patience, ANSWER_MAX_BYTES)
        } else {
            let (reader, writer) = socket.into_split();
            Connection::over(reader, writer, patience, ANSWER_MAX_BYTES)
        };
        let unreached = |error: CallError| Failed::unreached(error.to_string());
        let versions = Versions::of(&connection).await.map_err(unreached)?;
        if let Some(login) = &self.cluster.login {
            log_in(&connection, login).await.map_err(unreached)?;
        }
        Ok(Broker {
            address: address.clone(),
            metadata_version: versions.latest::<MetadataRequest>(&METADATA_VERSIONS).map_err(unreached)?,
            produce_version: versions.latest::<ProduceRequest>(&PRODUCE_VERSIONS).map_err(unreached)?,
            connection,
        })
    }

    /// Forgets a connection that has failed.
    fn close(&self, broker: &Arc<Broker>) {
        let mut slots = self.slots.lock();
        let is_this =
            |slot: &Slot| slot.try_lock().is_ok_and(|open| open.as_ref().is_some_and(|open| Arc::ptr_eq(open, broker)));
        if slots.get(&broker.address).is_some_and(is_this) {
            slots.remove(&broker.address);
        }
    }
}

/// The leaders that an answer names. They take TLS if those that were asked do.
fn read_places(answer: &MetadataResponse, is_tls: bool) -> Result<TopicPlaces, Missed> {
    let Some(topic) = answer.topics.first() else {
        return Err(Failed::unreached("the broker does not tell of the topic").into());
    };
    if topic.error_code != 0 {
        return Err(judged(topic.error_code, None));
    }
    let address_of = |id: i32| {
        let broker = answer.brokers.iter().find(|broker| broker.node_id.0 == id)?;
        let port = u16::try_from(broker.port).ok()?;
        Some(Address { host: broker.host.to_string(), port, is_tls })
    };
    let mut leaders = vec![None; topic.partitions.len()];
    for partition in &topic.partitions {
        let place = usize::try_from(partition.partition_index).ok().and_then(|index| leaders.get_mut(index));
        place.into_iter().for_each(|leader| *leader = address_of(partition.leader_id.0));
    }
    if leaders.is_empty() {
        return Err(Missed::Moved(Failed::refused("the topic has no partitions yet")));
    }
    Ok(TopicPlaces { leaders, known_at: Instant::now() })
}

/// The meaning of a broker's error (Kafka's protocol, section "Error Codes").
fn judged(code: i16, said: Option<&str>) -> Missed {
    let error = ResponseError::try_from_code(code);
    let name = error.map_or_else(|| format!("error {code}"), |error| error.to_string());
    let why = match said {
        Some(said) => format!("the broker refuses the record: {name}: {said}"),
        None => format!("the broker refuses the record: {name}"),
    };
    match error {
        Some(
            ResponseError::NotLeaderOrFollower
            | ResponseError::LeaderNotAvailable
            | ResponseError::UnknownTopicOrPartition
            | ResponseError::FencedLeaderEpoch
            | ResponseError::UnknownLeaderEpoch
            | ResponseError::ReplicaNotAvailable,
        ) => Missed::Moved(Failed::refused(why)),
        Some(
            ResponseError::NotEnoughReplicas
            | ResponseError::KafkaStorageError
            | ResponseError::ThrottlingQuotaExceeded
            | ResponseError::TopicAuthorizationFailed
            | ResponseError::ClusterAuthorizationFailed,
        ) => Missed::Failed(Failed::refused(why)),
        // Some replicas may have it; or no attempt will ever be taken.
        _ => Missed::Failed(Failed::unknown(why)),
    }
}

fn produce_request(message: &KafkaMessage, partition: i32, made_ms: i64, until: Instant) -> ProduceRequest {
    let headers = message.headers.iter();
    let headers: Vec<Header<'_>> = headers.map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
    let mut builder = BatchBuilder::default();
    builder.push(&Record {
        timestamp_ms: made_ms,
        key: message.key.as_ref().map(String::as_bytes),
        value: Some(message.value.as_bytes()),
        headers: &headers,
    });
    let batch = builder.seal(Offset::ZERO, Epoch::default(), Compression::None);
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.bytes().clone()));
    let name = TopicName(StrBytes::from_string(message.topic.clone()));
    let topic = TopicProduceData::default().with_name(name).with_partition_data(vec![data]);
    let timeout_ms = until.saturating_duration_since(Instant::now()).as_millis();
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(i32::try_from(timeout_ms).unwrap_or(i32::MAX))
        .with_topic_data(vec![topic])
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::BrokerId;
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };

    use super::*;
    use crate::config::NotificationsConfig;
    use millstream_outgoing::FailureKind;

    #[tokio::test]
    async fn a_connection_that_its_broker_has_closed_is_forgotten_before_it_is_idle_for_long() {
        let address = Address { host: "b".to_owned(), port: 1, is_tls: false };
        let cluster = NotificationCluster { brokers: vec![address.clone()], login: None };
        let outgoing = Arc::new(NotificationsConfig::default().outgoing(Arc::new(|| false)).unwrap());
        let receiver = KafkaReceiver::new(cluster, outgoing, 1);
        let (ours, theirs) = tokio::io::duplex(64);
        let (reader, writer) = tokio::io::split(ours);
        let connection = Connection::over(reader, writer, Duration::from_secs(60), ANSWER_MAX_BYTES);
        let broker = Broker { address: address.clone(), connection, metadata_version: 1, produce_version: 3 };
        receiver.slots.lock().insert(address, Arc::new(tokio::sync::Mutex::new(Some(Arc::new(broker)))));
        let idle = Duration::from_secs(3_600);
        assert!(!receiver.close_if_idle(idle));
        drop(theirs);
        while !receiver.close_if_idle(idle) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn an_error_of_a_broker_says_whether_the_record_may_be_there_and_another_attempt_helps() {
        use FailureKind::{Refused, Unknown};
        for (code, moved, kind) in [
            (3, true, Refused),
            (5, true, Refused),
            (6, true, Refused),
            (7, false, Unknown),
            (10, false, Unknown),
            (19, false, Refused),
            (20, false, Unknown),
            (29, false, Refused),
            (89, false, Refused),
            (9_999, false, Unknown),
        ] {
            let (is_moved, failed) = match judged(code, Some("said")) {
                Missed::Moved(failed) => (true, failed),
                Missed::Failed(failed) => (false, failed),
            };
            assert_eq!((is_moved, failed.kind), (moved, kind), "{code}: {}", failed.reason);
            assert!(failed.reason.ends_with(": said"), "{}", failed.reason);
        }
    }

    #[test]
    fn partitions_are_read_in_any_order_and_one_whose_leader_is_not_told_has_none() {
        let partition = |index, leader| {
            MetadataResponsePartition::default().with_partition_index(index).with_leader_id(BrokerId(leader))
        };
        let broker = |id, port| {
            let host = StrBytes::from_static_str("b");
            MetadataResponseBroker::default().with_node_id(BrokerId(id)).with_host(host).with_port(port)
        };
        let topic = |partitions| MetadataResponseTopic::default().with_partitions(partitions);
        let brokers = vec![broker(1, 9_092), broker(2, 70_000)];
        let answer =
            |partitions| MetadataResponse::default().with_brokers(brokers.clone()).with_topics(vec![topic(partitions)]);
        let partitions = vec![partition(2, 7), partition(1, 2), partition(0, 1), partition(9, 1), partition(-1, 1)];
        let places = read_places(&answer(partitions), true).unwrap_or_else(|_| panic!("there are partitions"));
        let first = Address { host: "b".to_owned(), port: 9_092, is_tls: true };
        assert_eq!(places.leaders, [Some(first), None, None, None, None]);
        assert!(matches!(read_places(&answer(Vec::new()), true), Err(Missed::Moved(_))));
        assert!(matches!(read_places(&MetadataResponse::default(), true), Err(Missed::Failed(_))));
    }
}
