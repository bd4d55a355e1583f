//! Producing: batches go into the log as they lie, in the order in which they arrive.

use std::future::Future;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Appended, Reply, Topic, Writers, reply};
use millstream_types::{BATCH_HEADER_BYTES, BatchLimits, Offset, Producer, RecordBatch, Role, Traffic};

use crate::caller::Caller;
use crate::error::Fault;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::transaction::{self, Producing};

/// How long a client is asked to wait that has sent more than can be written.
const THROTTLE_MS: i32 = 100;
/// The time of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// What a client wants to know of its append, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    Leader,
    All,
}

/// One partition's append under way.
struct Taken {
    index: i32,
    outcome: Result<(Reply<Appended>, Offset), Refusal>,
}

/// Produce. The appends are made before this returns; the future waits for their level.
pub(crate) fn produce(
    request: ProduceRequest,
    caller: Caller,
) -> impl Future<Output = Result<Option<ProduceResponse>, Fault>> + Send + 'static {
    let acks = match request.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        other => {
            let why = format!("acks = {other} cannot be; use 0, 1 or all (-1)");
            Err(Refusal::new(ResponseError::InvalidRequiredAcks, why))
        }
    };
    let transaction = request.transactional_id.map(|id| {
        let invalid = |error| Refusal::new(error, format!("'{}' cannot be a transactional id", id.as_str()));
        transaction::key(&caller, &id).map_err(invalid)
    });
    let (acks, transaction) = match (acks, transaction.transpose()) {
        (Ok(acks), Ok(transaction)) => (Ok(acks), transaction),
        (Err(refusal), _) | (_, Err(refusal)) => (Err(refusal), None),
    };
    let acks = caller.check(Role::Writer).and(acks);
    let sizes = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let bytes = sizes.filter_map(|data| data.records.as_ref()).map(Bytes::len).sum();
    let begun = caller.check_excess(Traffic::Produce).map(|()| caller.charge(Traffic::Produce, bytes));
    let topics = if begun.is_ok() { request.topic_data } else { Vec::new() };
    let taken: Vec<(TopicName, Vec<Taken>)> = topics
        .into_iter()
        .map(|topic| {
            let partitions = topic.partition_data.into_iter();
            let taken = partitions.map(|data| {
                let index = data.index;
                let acks = acks.as_ref().map_err(Refusal::clone);
                let outcome =
                    acks.and_then(|acks| append(&caller.node, &topic.name, data, *acks, transaction.as_deref()));
                Taken { index, outcome }
            });
            let taken = taken.collect();
            // A copy: the name as it came would keep the memory of the whole request.
            (TopicName(StrBytes::from_string(topic.name.to_string())), taken)
        })
        .collect();
    async move {
        let throttle_ms = begun?;
        match acks {
            Ok(Acks::None) => refused_unasked(taken),
            _ => Ok(Some(answer(taken, throttle_ms).await)),
        }
    }
}

fn append(
    node: &Node,
    name: &TopicName,
    data: PartitionProduceData,
    acks: Acks,
    transaction: Option<&str>,
) -> Result<(Reply<Appended>, Offset), Refusal> {
    let partition = node.partition(name, data.index)?;
    let topic = partition.topic();
    if topic.config.writers == Writers::OwnersOnly {
        let why = format!("topic '{}' is written by Millstream only; it can be read", topic.name);
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, why));
    }
    let batch = checked(data.records.unwrap_or_default(), &topic)?;
    let level = match acks {
        Acks::None => AckLevel::Memory,
        Acks::Leader => AckLevel::Written,
        Acks::All => topic.config.level,
    };
    let (done, appended) = reply();
    let producing = transacting(&batch, transaction, node)?;
    let append = || partition.append_batch(batch, level, done).map_err(|e| Refusal::from(&e));
    match producing {
        Some((key, who)) => node.transactions.produce(key, who, partition.id(), append)?,
        None => append()?,
    }
    Ok((appended, partition.offsets().first))
}

/// Of which transactional id the batch is, and of which of its producers; `None` if it belongs to no transaction.
fn transacting<'k>(
    batch: &RecordBatch,
    key: Option<&'k str>,
    node: &Node,
) -> Result<Option<(&'k str, Producing)>, Refusal> {
    let producer = batch.producer();
    if !batch.is_transactional() {
        return match producer.filter(|producer| node.transactions.is_transactional(producer.id)) {
            None => Ok(None),
            Some(Producer { id, .. }) => {
                let why = format!("producer id {id} belongs to a transactional id; its batches come in transactions");
                Err(Refusal::new(ResponseError::InvalidTxnState, why))
            }
        };
    }
    match (key, producer) {
        (Some(key), Some(Producer { id, epoch, .. })) => Ok(Some((key, Producing { id, epoch }))),
        (None, _) => {
            let why = "a batch of a transaction in a request that names no transactional id";
            Err(Refusal::new(ResponseError::InvalidTxnState, why))
        }
        (_, None) => {
            let why = "a batch of a transaction without a producer id; the program that built it is at fault";
            Err(Refusal::new(ResponseError::InvalidRecord, why))
        }
    }
}

/// The one batch that a producer sends for a partition.
fn checked(records: Bytes, topic: &Topic) -> Result<RecordBatch, Refusal> {
    let invalid = |why: &str| Err(Refusal::new(ResponseError::InvalidRecord, why));
    let size_bytes = records.len();
    let limit_bytes = topic.config.record_max_bytes + BATCH_HEADER_BYTES;
    if size_bytes > limit_bytes {
        let why =
            format!("a batch of {size_bytes} bytes exceeds max.message.bytes = {limit_bytes} of '{}'", topic.name);
        return Err(Refusal::new(ResponseError::MessageTooLarge, why));
    }
    let batch = RecordBatch::parse(records, &BatchLimits::default()).map_err(|e| Refusal::from(&e))?;
    if batch.size_bytes() != size_bytes {
        return invalid("a partition takes one batch in a request; send the next one in a request of its own");
    }
    if batch.is_control() {
        return invalid("control batches are not for producers; the program that built it is at fault");
    }
    let times = [batch.base_timestamp_ms(), batch.max_timestamp_ms()];
    if batch.has_append_time() || times.iter().any(|at_ms| *at_ms < NO_TIMESTAMP) {
        let why = format!("timestamps are set by producers, in ms since 1970 or -1 for none; got {times:?}");
        return Err(Refusal::new(ResponseError::InvalidTimestamp, why));
    }
    let offsets = batch.next_offset().0 - batch.base_offset().0;
    if batch.record_count() == 0 || u64::from(batch.record_count()) != offsets {
        return invalid("the batch has not one record for each of its offsets; the program that built it is at fault");
    }
    Ok(batch)
}

/// Without an answer the only way to tell a refusal is to end the connection.
fn refused_unasked(taken: Vec<(TopicName, Vec<Taken>)>) -> Result<Option<ProduceResponse>, Fault> {
    let outcomes = taken.into_iter().flat_map(|(_, taken)| taken).map(|taken| taken.outcome);
    match outcomes.filter_map(Result::err).next() {
        Some(refusal) => Err(Fault::RefusedUnasked { why: refusal.why }),
        None => Ok(None),
    }
}

async fn answer(taken: Vec<(TopicName, Vec<Taken>)>, mut throttle_ms: i32) -> ProduceResponse {
    let mut responses = Vec::with_capacity(taken.len());
    for (name, taken) in taken {
        let mut partitions = Vec::with_capacity(taken.len());
        for Taken { index, outcome } in taken {
            let outcome = match outcome {
                Ok((appended, first)) => appended.await.map(|a| (a, first)).map_err(|e| Refusal::from(&e)),
                Err(refusal) => Err(refusal),
            };
            if outcome.as_ref().is_err_and(|refusal| refusal.error == ResponseError::NotEnoughReplicas) {
                throttle_ms = throttle_ms.max(THROTTLE_MS);
            }
            partitions.push(describe(index, outcome));
        }
        responses.push(TopicProduceResponse::default().with_name(name).with_partition_responses(partitions));
    }
    ProduceResponse::default().with_responses(responses).with_throttle_time_ms(throttle_ms)
}

fn describe(index: i32, outcome: Result<(Appended, Offset), Refusal>) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(-1);
    match outcome {
        Ok((appended, first)) => {
            response.with_base_offset(appended.first.0.cast_signed()).with_log_start_offset(first.0.cast_signed())
        }
        Err(refusal) => response
            .with_base_offset(-1)
            .with_log_start_offset(-1)
            .with_error_code(refusal.code())
            .with_error_message(refusal.message()),
    }
}
