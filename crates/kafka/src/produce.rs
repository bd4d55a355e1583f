//! Produce: batches go into the log unchanged, in the order of their arrival.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Appended, KafkaPartition, Reply, Topic, reply};
use millstream_types::{
    BATCH_HEADER_BYTES, BatchLimits, Offset, Producer, QuotaType, RecordBatch, Role, SystemClock, TopicPartition,
    WallClock as _,
};
use tokio::task::JoinHandle;

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
/// First version whose clients know the error for a transaction that they have to abort.
const ABORTABLE_VERSION: i16 = 11;
/// First version whose batches add their partitions to the transaction.
const ADDS_PARTITIONS_VERSION: i16 = 12;
/// The time of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// The acknowledgement that a client waits for, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    Leader,
    All,
}

/// A batch that is checked and may be appended.
struct CheckedAppend {
    partition: Arc<dyn KafkaPartition>,
    batch: RecordBatch,
    level: AckLevel,
    append_time_ms: Option<i64>,
    /// Its producer, if it belongs to a transaction.
    transacting: Option<ProducerIdAndEpoch>,
}

/// The checked batches of a request, by topic and partition.
type CheckedTopics = Vec<(TopicName, Vec<(i32, Result<CheckedAppend, ApiError>)>)>;
/// The appends of a request, by topic.
type BegunTopics = Vec<(TopicName, Vec<PartitionAppend>)>;

/// The appends of a request.
enum Appends {
    Begun(BegunTopics),
    /// They begin once their partitions are in the transaction.
    Waiting(JoinHandle<BegunTopics>),
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

/// Produce: appends before it returns; the future waits for the acknowledgement level. Batches whose partitions have to be added
/// to their transaction first are appended when that is stored, and later ones of their connection behind them.
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
    let checked: CheckedTopics = topics
        .into_iter()
        .map(|topic| {
            let partitions = topic.partition_data.into_iter();
            let checked = partitions.map(|data| {
                let index = data.index;
                let acks = acks.as_ref().map_err(ApiError::clone);
                (index, acks.and_then(|acks| check(&context, &topic.name, data, *acks, transaction.as_deref())))
            });
            let checked = checked.collect();
            // A copy, because the original name would keep the memory of the whole request.
            (TopicName(StrBytes::from_string(topic.name.to_string())), checked)
        })
        .collect();
    let appends = begin(context, checked, transaction);
    async move {
        let throttle_ms = begun?;
        let taken = match appends {
            Appends::Begun(taken) => taken,
            Appends::Waiting(taken) => taken.await.map_err(std::io::Error::from)?,
        };
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

/// Checks one batch.
fn check(
    context: &RequestContext,
    name: &TopicName,
    data: PartitionProduceData,
    acks: Acks,
    transaction: Option<&str>,
) -> Result<CheckedAppend, ApiError> {
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
    let transacting = transacting(&batch, transaction, broker)?;
    Ok(CheckedAppend { partition, batch, level, append_time_ms, transacting })
}

/// Appends what was checked, at once or in a task that waits for the transaction.
fn begin(context: RequestContext, checked: CheckedTopics, key: Option<String>) -> Appends {
    let key = match key {
        Some(key) if context.version >= ADDS_PARTITIONS_VERSION => key,
        key => return Appends::Begun(append_all(&context, checked, key.as_deref())),
    };
    let lacking = lacking(&context, &checked, &key);
    if lacking.is_none() && !context.connection.has_waiting_append() {
        return Appends::Begun(append_all(&context, checked, Some(&key)));
    }
    let (before, begun) = context.connection.wait_behind();
    Appends::Waiting(tokio::spawn(async move {
        let _begun = begun;
        if let Some(before) = before {
            // Its end counts, whichever it is.
            before.await.ok();
        }
        let mut checked = checked;
        if let Some((who, partitions)) = lacking
            && let Err(error) = transaction_apis::add_produced(&context, key.clone(), who, partitions.clone()).await
        {
            let rows = checked.iter_mut().flat_map(|(_, rows)| rows);
            let is_lacking = |row: &Result<CheckedAppend, _>| {
                row.as_ref().is_ok_and(|append| partitions.contains(append.partition.id()))
            };
            for (_, row) in rows.filter(|(_, row)| is_lacking(row)) {
                let why = format!("the partition could not be added to the transaction of '{key}': {error}");
                *row = Err(ApiError::new(error, why));
            }
        }
        append_all(&context, checked, Some(&key))
    }))
}

/// The producer of the request, and the partitions that are not in its transaction.
fn lacking(
    context: &RequestContext,
    checked: &CheckedTopics,
    key: &str,
) -> Option<(ProducerIdAndEpoch, Vec<TopicPartition>)> {
    let appends = checked.iter().flat_map(|(_, rows)| rows).filter_map(|(_, row)| row.as_ref().ok());
    let appends = appends.filter_map(|append| Some((append.transacting?, append.partition.id())));
    let mut lacking = appends.filter(|(who, id)| context.broker.transactions.lacks(key, *who, id)).peekable();
    let (who, _) = *lacking.peek()?;
    // A request has one producer.
    Some((who, lacking.filter(|(other, _)| *other == who).map(|(_, id)| id.clone()).collect()))
}

fn append_all(context: &RequestContext, checked: CheckedTopics, key: Option<&str>) -> BegunTopics {
    let append = |(index, checked): (i32, Result<CheckedAppend, ApiError>)| PartitionAppend {
        index,
        outcome: checked.and_then(|checked| append(context, checked, key)),
    };
    checked.into_iter().map(|(name, rows)| (name, rows.into_iter().map(append).collect())).collect()
}

fn append(context: &RequestContext, checked: CheckedAppend, key: Option<&str>) -> Result<PendingAppend, ApiError> {
    let CheckedAppend { partition, batch, level, append_time_ms, transacting } = checked;
    let (done, appended) = reply();
    let append = || partition.append_batch(batch, level, done.failing_on_full_disk()).map_err(|e| ApiError::from(&e));
    match key.zip(transacting) {
        Some((key, who)) => {
            let not_added = match context.version >= ABORTABLE_VERSION {
                true => ResponseError::TransactionAbortable,
                false => ResponseError::InvalidTxnState,
            };
            context.broker.transactions.produce(key, who, partition.id(), not_added, append)?;
        }
        None => append()?,
    }
    Ok(PendingAppend { appended, first: partition.offsets().first, append_time_ms })
}

/// The producer of a batch; `None` if it belongs to no transaction.
fn transacting(
    batch: &RecordBatch,
    key: Option<&str>,
    broker: &Broker,
) -> Result<Option<ProducerIdAndEpoch>, ApiError> {
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
        (Some(_), Some(Producer { id, epoch, .. })) => Ok(Some(ProducerIdAndEpoch { id, epoch })),
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
