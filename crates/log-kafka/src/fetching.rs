//! Fetches of records and of the ends of partitions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, ListOffsetsRequest, TopicName as WireName};
use kafka_protocol::protocol::{Request, StrBytes};
use millstream_kafka_wire::CallError;
use millstream_log::Error;
use millstream_types::{BatchLimits, Offset};
use uuid::Uuid;

use crate::cluster::Purpose;
use crate::core::{Core, said};
use crate::partition_state::{Ends, PartitionState};
use crate::visible::{Times, Visible, visible};

pub(crate) const FETCH_VERSION: i16 = 16;
/// Bytes of one fetch of records that are new.
const NEW_RECORDS_BYTES: i32 = 4 << 20;
pub(crate) const LIST_OFFSETS_VERSION: i16 = 7;
/// The records of open transactions, as a reader sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// It stops in front of them.
    Committed,
    /// It sees them.
    Uncommitted,
}

impl Isolation {
    pub(crate) fn level(self) -> i8 {
        match self {
            Self::Uncommitted => 0,
            Self::Committed => 1,
        }
    }
}

pub(crate) const EARLIEST: i64 = -2;
pub(crate) const LATEST: i64 = -1;

/// The answer of a leader for one partition.
pub(crate) struct Fetched {
    pub(crate) ends: Ends,
    pub(crate) visible: Visible,
}

/// The ends of a partition in the answer to a fetch.
pub(crate) fn ends_of(partition: &PartitionState, data: &PartitionData) -> Ends {
    Ends {
        first: partition.origin.map.first(data.log_start_offset),
        stable: partition.offset(data.last_stable_offset),
        high: partition.offset(data.high_watermark),
    }
}

/// Reads the answer of a leader that has not refused.
///
/// # Errors
/// [`Error::Batch`] for a damaged batch.
pub(crate) fn fetched(partition: &PartitionState, data: PartitionData) -> Result<Fetched, Error> {
    let ends = ends_of(partition, &data);
    let aborted = data.aborted_transactions.unwrap_or_default();
    let undecodable = |source| Error::Batch { partition: partition.id.clone(), source };
    let times = if partition.topic.topic().config.append_time { Times::OfAppend } else { Times::OfRecords };
    let Visible { batches, next } = visible(data.records.unwrap_or_default(), &aborted, times).map_err(undecodable)?;
    let mut at_their_offsets = Vec::with_capacity(batches.len());
    for batch in batches {
        at_their_offsets.extend(partition.origin.at_its_offsets(batch).map_err(undecodable)?);
    }
    let next = next.map(|next| partition.offset(next.0.cast_signed()));
    Ok(Fetched { ends, visible: Visible { batches: at_their_offsets, next } })
}

/// The place of one partition in a fetch.
pub(crate) fn place(partition: &PartitionState, from: Offset, max_bytes: i32) -> FetchPartition {
    FetchPartition::default()
        .with_partition(partition.index())
        .with_current_leader_epoch(partition.leader().map_or(-1, |leader| leader.epoch))
        .with_fetch_offset(partition.kafka_offset(from))
        .with_last_fetched_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(max_bytes)
}

/// A fetch without a session.
pub(crate) fn request(topics: Vec<FetchTopic>, max_wait: Duration, max_bytes: i32) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(i32::try_from(max_wait.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_isolation_level(Isolation::Committed.level())
        .with_session_epoch(-1)
        .with_topics(topics)
}

pub(crate) fn topic(id: Uuid, partitions: Vec<FetchPartition>) -> FetchTopic {
    FetchTopic::default().with_topic_id(id).with_partitions(partitions)
}

/// A question to the leader of a partition. `answer` gives the error code if the leader refuses.
pub(crate) struct Question<R: Request, T> {
    /// The name of the question in errors.
    pub(crate) name: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) version: i16,
    pub(crate) request: R,
    pub(crate) answer: fn(R::Response) -> Option<Result<T, i16>>,
}

/// Asks the leader of a partition until it answers, or the time for a delivery has passed.
///
/// # Errors
/// [`Error::UnknownTopic`], [`Error::Unreachable`], [`Error::Refused`].
pub(crate) async fn ask_leader<R: Request, T>(
    core: &Core,
    partition: &Arc<PartitionState>,
    question: &Question<R, T>,
) -> Result<T, Error> {
    let deadline = Instant::now() + core.config.delivery_timeout;
    let patience = core.config.request_timeout * 2;
    loop {
        let answer = match partition.leader() {
            Some(leader) => match core.cluster.broker(leader.broker, question.purpose).await {
                Ok(broker) => broker.call_within(&question.request, question.version, patience).await,
                Err(error) => Err(error),
            },
            None => Err(CallError::Unsent("the partition has no leader".to_owned())),
        };
        partition.topic.check_exists()?;
        let refused = match answer.map(question.answer) {
            Ok(Some(Ok(answer))) => return Ok(answer),
            Ok(Some(Err(code))) if ResponseError::try_from_code(code).is_some_and(|error| error.is_retriable()) => {
                CallError::Unsent(said(code, None))
            }
            Ok(Some(Err(code))) => return Err(Error::Refused { request: question.name, why: said(code, None) }),
            Ok(None) => CallError::Unsent("the answer has no partition".to_owned()),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            return Err(core.unreachable(&refused));
        }
        tokio::time::sleep(core.config.retry_backoff).await;
        // Without an answer the leader is that of before.
        let _ = core.find_leaders(std::slice::from_ref(partition)).await;
    }
}

/// Reads once from `from`, as much as a leader gives for `max_bytes`. An offset outside the partition gives `None`.
///
/// # Errors
/// Those of [`ask_leader`]; [`Error::Batch`] for a damaged batch.
pub(crate) async fn fetch(
    core: &Core,
    partition: &Arc<PartitionState>,
    from: Offset,
    max_bytes: i32,
    isolation: Isolation,
) -> Result<Option<Fetched>, Error> {
    let topics = vec![topic(partition.topic.id, vec![place(partition, from, max_bytes).with_current_leader_epoch(-1)])];
    let question = Question {
        name: "a fetch",
        purpose: Purpose::Read,
        version: FETCH_VERSION,
        request: request(topics, Duration::ZERO, max_bytes).with_isolation_level(isolation.level()),
        answer: |response| {
            if response.error_code != 0 {
                return Some(Err(response.error_code));
            }
            let data = response.responses.into_iter().flat_map(|topic| topic.partitions).next()?;
            Some(match data.error_code {
                0 => Ok(Some(data)),
                code if code == ResponseError::OffsetOutOfRange.code() => Ok(None),
                code => Err(code),
            })
        },
    };
    ask_leader(core, partition, &question).await?.map(|data| fetched(partition, data)).transpose()
}

/// Reads what was committed from `next` on, and calls `take` with key and value of each record.
///
/// # Errors
/// Those of a look-up and of a fetch.
pub(crate) async fn new_records(
    core: &Core,
    partition: &Arc<PartitionState>,
    next: &mut Offset,
    mut take: impl FnMut(&[u8], Option<&[u8]>),
) -> Result<(), Error> {
    let undecodable = |source| Error::Batch { partition: partition.id.clone(), source };
    let ends = ends(core, partition).await?;
    *next = (*next).max(ends.first);
    while *next < ends.stable {
        let fetched = fetch(core, partition, *next, NEW_RECORDS_BYTES, Isolation::Committed).await?;
        let Some((visible, after)) =
            fetched.and_then(|fetched| fetched.visible.next.map(|next| (fetched.visible, next)))
        else {
            break;
        };
        for batch in visible.batches {
            let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
            for record in batch.records() {
                let record = record.map_err(undecodable)?;
                // A batch may begin before the offset that is asked for.
                if record.offset >= *next {
                    take(record.key.unwrap_or_default(), record.value);
                }
            }
        }
        *next = after;
    }
    Ok(())
}

/// The ends of a partition as its leader tells them.
pub(crate) async fn ends(core: &Core, partition: &Arc<PartitionState>) -> Result<Ends, Error> {
    let first = kafka_offset_at(core, partition, EARLIEST, Isolation::Uncommitted).await?.unwrap_or(0);
    let stable = kafka_offset_at(core, partition, LATEST, Isolation::Committed).await?.unwrap_or(0);
    let high = kafka_offset_at(core, partition, LATEST, Isolation::Uncommitted).await?.unwrap_or(0);
    let first = partition.origin.map.first(first);
    let [stable, high] = [stable, high].map(|kafka_offset| partition.offset(kafka_offset));
    Ok(Ends { first, stable: stable.max(first), high: high.max(stable) })
}

/// The first committed offset whose record Kafka dates at or after `timestamp_ms`, by its own or its append time.
pub(crate) async fn offset_of_time(
    core: &Core,
    partition: &Arc<PartitionState>,
    timestamp_ms: i64,
) -> Result<Option<Offset>, Error> {
    let found = kafka_offset_at(core, partition, timestamp_ms.max(0), Isolation::Committed).await?;
    Ok(found.map(|kafka_offset| partition.offset(kafka_offset)))
}

pub(crate) async fn kafka_offset_at(
    core: &Core,
    partition: &Arc<PartitionState>,
    timestamp: i64,
    isolation: Isolation,
) -> Result<Option<i64>, Error> {
    let wanted = ListOffsetsPartition::default()
        .with_partition_index(partition.index())
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let name = WireName(StrBytes::from_string(partition.topic.kafka_name.clone()));
    let topic = ListOffsetsTopic::default().with_name(name).with_partitions(vec![wanted]);
    let question = Question {
        name: "a look-up of an offset",
        purpose: Purpose::Control,
        version: LIST_OFFSETS_VERSION,
        request: ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation.level())
            .with_topics(vec![topic]),
        answer: |response| {
            let found = response.topics.into_iter().flat_map(|topic| topic.partitions).next()?;
            Some(match found.error_code {
                0 => Ok(Some(found.offset).filter(|offset| *offset >= 0)),
                code => Err(code),
            })
        },
    };
    ask_leader(core, partition, &question).await
}
