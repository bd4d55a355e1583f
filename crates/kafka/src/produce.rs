//! Produce: batches go into the log unchanged, in the order of their arrival.

use std::future::Future;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Appended, Reply, Topic, reply};
use millstream_types::{
    BATCH_HEADER_BYTES, BatchLimits, Offset, Producer, QuotaType, RecordBatch, Role, SystemClock, WallClock as _,
};

use crate::api_error::ApiError;
use crate::broker::Broker;
use crate::error::ConnectionError;
use crate::request_context::RequestContext;
use crate::transaction::ProducerIdAndEpoch;
use crate::transaction_apis;

/// Throttle time for a client that sends more than can be written.
const THROTTLE_MS: i32 = 100;
/// The errors of such a client.
const PACED: [ResponseError; 2] = [ResponseError::NotEnoughReplicas, ResponseError::NotEnoughReplicasAfterAppend];
/// The time of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// The acknowledgement that a client waits for, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    Leader,
    All,
}

/// An append under way, in a partition that begins at `first`.
struct PendingAppend {
    appended: Reply<Appended>,
    first: Offset,
    /// The append time of all records, for topics with log append time.
    append_time_ms: Option<i64>,
}

/// One partition's append under way.
struct PartitionAppend {
    index: i32,
    outcome: Result<PendingAppend, ApiError>,
}

/// Produce: appends before it returns; the future waits for the acknowledgement level.
pub(crate) fn produce(
    request: ProduceRequest,
    context: RequestContext,
) -> impl Future<Output = Result<Option<ProduceResponse>, ConnectionError>> + Send + 'static {
    let is_unasked = request.acks == 0;
    let acks = match request.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        other => {
            let why = format!("acks = {other} cannot be; use 0, 1 or all (-1)");
            Err(ApiError::new(ResponseError::InvalidRequiredAcks, why))
        }
    };
    let transaction = request.transactional_id.map(|id| {
        let invalid = |error| ApiError::new(error, format!("'{}' cannot be a transactional id", id.as_str()));
        transaction_apis::key(&context, &id).map_err(invalid)
    });
    let (acks, transaction) = match (acks, transaction.transpose()) {
        (Ok(acks), Ok(transaction)) => (Ok(acks), transaction),
        (Err(refusal), _) | (_, Err(refusal)) => (Err(refusal), None),
    };
    let acks = context.check(Role::Writer).and(acks).and_then(|acks| check_size(&context).map(|()| acks));
    let sizes = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let records_bytes: usize = sizes.filter_map(|data| data.records.as_ref()).map(Bytes::len).sum();
    let bytes = context.oversized_bytes.unwrap_or(records_bytes);
    let begun = context.check_excess(QuotaType::Produce).map(|()| context.charge(QuotaType::Produce, bytes));
    let topics = if begun.is_ok() { request.topic_data } else { Vec::new() };
    let taken: Vec<(TopicName, Vec<PartitionAppend>)> = topics
        .into_iter()
        .map(|topic| {
            let partitions = topic.partition_data.into_iter();
            let taken = partitions.map(|data| {
                let index = data.index;
                let acks = acks.as_ref().map_err(ApiError::clone);
                let outcome = acks.and_then(|acks| append(&context, &topic.name, data, *acks, transaction.as_deref()));
                PartitionAppend { index, outcome }
            });
            let taken = taken.collect();
            // A copy, because the original name would keep the memory of the whole request.
            (TopicName(StrBytes::from_string(topic.name.to_string())), taken)
        })
        .collect();
    async move {
        let throttle_ms = begun?;
        match is_unasked {
            true => refused_unasked(taken),
            false => Ok(Some(answer(taken, throttle_ms).await)),
        }
    }
}

/// Refuses a request over the size limit.
fn check_size(context: &RequestContext) -> Result<(), ApiError> {
    let Some(size_bytes) = context.oversized_bytes else { return Ok(()) };
    let limit_bytes = context.broker.config.request_max_bytes;
    let why = format!(
        "a request of {size_bytes} bytes exceeds kafka.request_max_bytes = {limit_bytes}; send less at once (max.request.size), or raise that"
    );
    Err(ApiError::new(ResponseError::MessageTooLarge, why))
}

fn append(
    context: &RequestContext,
    name: &TopicName,
    data: PartitionProduceData,
    acks: Acks,
    transaction: Option<&str>,
) -> Result<PendingAppend, ApiError> {
    let broker = &*context.broker;
    let partition = broker.partition(name, data.index)?;
    let topic = partition.topic();
    context.check_writable(&topic)?;
    let batch = checked(data.records.unwrap_or_default(), &topic)?;
    // Decided here, because the response contains the time.
    let append_time_ms = topic.config.append_time.then(|| SystemClock::default().now_ms());
    let batch = match append_time_ms {
        Some(at_ms) => batch.into_append_timed(at_ms),
        None => {
            check_ahead(&batch, broker.config.message_timestamp_after_max_ms)?;
            batch
        }
    };
    let level = match acks {
        Acks::None => AckLevel::Memory,
        Acks::Leader => AckLevel::Written,
        Acks::All => topic.config.level,
    };
    let (done, appended) = reply();
    let producing = transacting(&batch, transaction, broker)?;
    let append = || partition.append_batch(batch, level, done.failing_on_full_disk()).map_err(|e| ApiError::from(&e));
    match producing {
        Some((key, who)) => broker.transactions.produce(key, who, partition.id(), append)?,
        None => append()?,
    }
    Ok(PendingAppend { appended, first: partition.offsets().first, append_time_ms })
}

/// The transactional id and the producer of a batch; `None` if it belongs to no transaction.
fn transacting<'k>(
    batch: &RecordBatch,
    key: Option<&'k str>,
    broker: &Broker,
) -> Result<Option<(&'k str, ProducerIdAndEpoch)>, ApiError> {
    let producer = batch.producer();
    if !batch.is_transactional() {
        return match producer.filter(|producer| broker.transactions.is_transactional(producer.id)) {
            None => Ok(None),
            Some(Producer { id, .. }) => {
                let why = format!("producer id {id} belongs to a transactional id; its batches come in transactions");
                Err(ApiError::new(ResponseError::InvalidTxnState, why))
            }
        };
    }
    match (key, producer) {
        (Some(key), Some(Producer { id, epoch, .. })) => Ok(Some((key, ProducerIdAndEpoch { id, epoch }))),
        (None, _) => {
            let why = "a batch of a transaction in a request that names no transactional id";
            Err(ApiError::new(ResponseError::InvalidTxnState, why))
        }
        (_, None) => {
            let why = "a batch of a transaction without a producer id; the program that built it is at fault";
            Err(ApiError::new(ResponseError::InvalidRecord, why))
        }
    }
}

/// The one batch that a producer sends for a partition.
fn checked(records: Bytes, topic: &Topic) -> Result<RecordBatch, ApiError> {
    let invalid = |why: &str| Err(ApiError::new(ResponseError::InvalidRecord, why));
    let size_bytes = records.len();
    let limit_bytes = topic.config.record_max_bytes + BATCH_HEADER_BYTES;
    if size_bytes > limit_bytes {
        let why =
            format!("a batch of {size_bytes} bytes exceeds max.message.bytes = {limit_bytes} of '{}'", topic.name);
        return Err(ApiError::new(ResponseError::MessageTooLarge, why));
    }
    let batch = RecordBatch::parse(records, &BatchLimits::default()).map_err(|e| ApiError::from(&e))?;
    if batch.size_bytes() != size_bytes {
        return invalid("a partition takes one batch in a request; send the next one in a request of its own");
    }
    if batch.is_control() {
        return invalid("control batches are not for producers; the program that built it is at fault");
    }
    let times = [batch.base_timestamp_ms(), batch.max_timestamp_ms()];
    if batch.has_append_time() || times.iter().any(|at_ms| *at_ms < NO_TIMESTAMP) {
        let why = format!("timestamps are set by producers, in ms since 1970 or -1 for none; got {times:?}");
        return Err(ApiError::new(ResponseError::InvalidTimestamp, why));
    }
    let offsets = batch.next_offset().0 - batch.base_offset().0;
    if batch.record_count() == 0 || u64::from(batch.record_count()) != offsets {
        return invalid("the batch has not one record for each of its offsets; the program that built it is at fault");
    }
    Ok(batch)
}

/// Refuses a batch whose time is too far ahead of the clock: retention by time and readers that look for a time would take it
/// for the latest for long.
fn check_ahead(batch: &RecordBatch, limit_ms: u64) -> Result<(), ApiError> {
    let now_ms = SystemClock::default().now_ms();
    let latest_ms = now_ms.saturating_add(i64::try_from(limit_ms).unwrap_or(i64::MAX));
    let time_ms = batch.max_timestamp_ms();
    if time_ms <= latest_ms {
        return Ok(());
    }
    let why = format!(
        "a record's time {time_ms} (ms since 1970) is {} ms ahead of the server's clock, which kafka.message_timestamp_after_max_ms = {limit_ms} forbids; set the producer's clock, or raise that",
        time_ms.saturating_sub(now_ms)
    );
    let refusal = ApiError::new(ResponseError::InvalidTimestamp, why);
    let inflated = batch.inflated(&BatchLimits::default()).map_err(|e| ApiError::from(&e))?;
    let mut times = inflated.records().map(|record| record.map_or(NO_TIMESTAMP, |record| record.timestamp_ms));
    Err(match times.position(|time_ms| time_ms > latest_ms) {
        Some(index) => refusal.of_record(index),
        None => refusal,
    })
}

/// A request without a response is refused by closing the connection.
fn refused_unasked(taken: Vec<(TopicName, Vec<PartitionAppend>)>) -> Result<Option<ProduceResponse>, ConnectionError> {
    let outcomes = taken.into_iter().flat_map(|(_, taken)| taken).map(|taken| taken.outcome);
    match outcomes.filter_map(Result::err).next() {
        Some(refusal) => Err(ConnectionError::RefusedUnasked { why: refusal.why }),
        None => Ok(None),
    }
}

async fn answer(taken: Vec<(TopicName, Vec<PartitionAppend>)>, mut throttle_ms: i32) -> ProduceResponse {
    let mut responses = Vec::with_capacity(taken.len());
    for (name, taken) in taken {
        let mut partitions = Vec::with_capacity(taken.len());
        for PartitionAppend { index, outcome } in taken {
            let outcome = match outcome {
                Ok(PendingAppend { appended, first, append_time_ms }) => {
                    let appended = appended.await.map_err(|e| ApiError::from(&e));
                    appended.map(|appended| (appended, first, append_time_ms))
                }
                Err(refusal) => Err(refusal),
            };
            if outcome.as_ref().is_err_and(|refusal| PACED.contains(&refusal.error)) {
                throttle_ms = throttle_ms.max(THROTTLE_MS);
            }
            partitions.push(describe(index, outcome));
        }
        responses.push(TopicProduceResponse::default().with_name(name).with_partition_responses(partitions));
    }
    ProduceResponse::default().with_responses(responses).with_throttle_time_ms(throttle_ms)
}

fn describe(index: i32, outcome: Result<(Appended, Offset, Option<i64>), ApiError>) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(NO_TIMESTAMP);
    match outcome {
        Ok((appended, first, append_time_ms)) => response
            .with_base_offset(appended.first.0.cast_signed())
            .with_log_start_offset(first.0.cast_signed())
            .with_log_append_time_ms(append_time_ms.unwrap_or(NO_TIMESTAMP)),
        Err(refusal) => response
            .with_base_offset(-1)
            .with_log_start_offset(-1)
            .with_error_code(refusal.code())
            .with_record_errors(record_errors(&refusal))
            .with_error_message(refusal.message()),
    }
}

/// The record at fault. Clients tell the sender of that record the reason, and those of the others that theirs were in the same
/// batch.
fn record_errors(refusal: &ApiError) -> Vec<BatchIndexAndErrorMessage> {
    let of_record = |index| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(i32::try_from(index).unwrap_or(i32::MAX))
            .with_batch_index_error_message(refusal.message())
    };
    refusal.record.map(of_record).into_iter().collect()
}
