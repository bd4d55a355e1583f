//! Fetch: stored batches go to the socket without a copy, and a waiting client costs a task and no thread.
//!
//! Readers that are far behind get their records in pieces. One piece is small enough that other tasks do not wait long for
//! a core while it is read from segments and written to the socket.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AbortedTransaction as Aborted, Error as LogError, KafkaPartition, StoredBatches, UpTo};
use millstream_types::{Grant, MemoryBudget, Offset, QuotaType, RecordBatch, Role, TopicId};
use tokio::time::{Instant, sleep_until};

use crate::api_error::ApiError;
use crate::error::ConnectionError;
use crate::fetch_response::{FetchedPartition, ZeroCopyFetchResponse};
use crate::isolation::Isolation;
use crate::network_send::SendBuffer;
use crate::request_context::RequestContext;

/// The longest that a client may wait.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// From this version on topics are named by their ids.
const TOPIC_IDS: i16 = 13;
/// Time between two attempts of a fetch for which the memory budget has no room.
const MEMORY_REST: Duration = Duration::from_millis(50);
/// Bytes read from a partition's segments for one response, unless the client asks to wait for more.
const FROM_SEGMENTS_BYTES: usize = 512 << 10;

/// Partitions of one response whose records are sent from their file, which stays open until they are sent. Records of other
/// partitions are read into memory.
const FILES_MAX: usize = 8;

/// One partition that a client reads.
struct PartitionFetch {
    partition: Result<Arc<dyn KafkaPartition>, ApiError>,
    asked: FetchPartition,
}

/// The parameters of one fetch.
struct FetchParams {
    /// The partitions of each topic, in the order of the request.
    wanted: Vec<Vec<PartitionFetch>>,
    max_bytes: usize,
    isolation: Isolation,
    memory: MemoryBudget,
}

/// The records of one pass over all partitions.
struct ReadResult {
    /// As [`PartitionFetch`], topic by topic.
    found: Vec<Vec<FetchedPartition>>,
    bytes: usize,
    refused: bool,
    /// A partition was read up to the size of a piece, and has more.
    in_pieces: bool,
    /// Number of partitions whose records are sent from their file.
    files: usize,
    /// The records' share of the memory budget.
    memory: Option<Grant>,
    /// The memory budget has no room for further records.
    lacks_memory: bool,
}

pub(crate) async fn fetch(
    request: FetchRequest,
    context: RequestContext,
) -> Result<ZeroCopyFetchResponse, ConnectionError> {
    context.check_excess(QuotaType::Fetch)?;
    let mut fetched = fetched(request, &context).await?;
    let partitions = fetched.topics.iter().flat_map(|(_, partitions)| partitions);
    let bytes = partitions.map(FetchedPartition::size_bytes).sum();
    fetched.response.throttle_time_ms = context.charge(QuotaType::Fetch, bytes);
    Ok(fetched)
}

async fn fetched(request: FetchRequest, context: &RequestContext) -> Result<ZeroCopyFetchResponse, ConnectionError> {
    if request.session_id != 0 {
        // Fetch sessions are never handed out; every fetch is complete.
        let response = FetchResponse::default().with_error_code(ResponseError::FetchSessionIdNotFound.code());
        return Ok(ZeroCopyFetchResponse { response, ..ZeroCopyFetchResponse::default() });
    }
    let broker = &context.broker;
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(broker.config.fetch_max_bytes);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let deadline = Instant::now() + wait;
    let topics = request
        .topics
        .iter()
        .map(|topic| FetchableTopicResponse::default().with_topic(topic.topic.clone()).with_topic_id(topic.topic_id));
    let topics: Vec<_> = topics.collect();
    let wanted = request
        .topics
        .into_iter()
        .map(|topic| {
            let name = name(context, &topic);
            topic.partitions.into_iter().map(|asked| want(context, &name, asked)).collect()
        })
        .collect();
    let isolation = Isolation::from(request.isolation_level);
    let asked = Arc::new(FetchParams {
        wanted,
        max_bytes,
        isolation,
        memory: broker.memory.for_tenant(&broker.namespace.tenant),
    });
    let mut stopping = std::pin::pin!(broker.shutdown.clone().begun());
    let mut piece_bytes = if min_bytes < FROM_SEGMENTS_BYTES { FROM_SEGMENTS_BYTES } else { usize::MAX };
    let round = loop {
        let round = look(&asked, piece_bytes).await?;
        let has_all_it_can = round.bytes >= min_bytes.min(max_bytes) || round.lacks_memory && round.bytes > 0;
        if has_all_it_can || round.refused || Instant::now() >= deadline {
            break round;
        }
        if round.in_pieces {
            piece_bytes = usize::MAX;
            continue;
        }
        let again = if round.lacks_memory { deadline.min(Instant::now() + MEMORY_REST) } else { deadline };
        drop(round.memory);
        tokio::select! {
            () = context.connection.bell.rung(), if !round.lacks_memory => {}
            () = sleep_until(again) => {}
            () = stopping.as_mut() => break ReadResult { memory: None, ..round },
        }
    };
    if round.lacks_memory && round.bytes == 0 {
        context.connection.tell_lack_of_memory(&broker.memory);
    }
    let topics = topics.into_iter().zip(round.found).collect();
    Ok(ZeroCopyFetchResponse { response: FetchResponse::default(), topics, memory: round.memory })
}

/// The name of a topic in the request; from `TOPIC_IDS` on it is found by its id.
fn name(context: &RequestContext, topic: &FetchTopic) -> Result<TopicName, ApiError> {
    if context.version < TOPIC_IDS {
        return Ok(topic.topic.clone());
    }
    let found = context.broker.topic_by_id(TopicId(topic.topic_id.as_u128()));
    found.map(|found| TopicName(StrBytes::from_string(context.broker.namespace.render(&found.name)))).ok_or_else(|| {
        let why = format!("there is no topic of the id {}", topic.topic_id);
        ApiError::new(ResponseError::UnknownTopicId, why)
    })
}

fn want(context: &RequestContext, topic: &Result<TopicName, ApiError>, asked: FetchPartition) -> PartitionFetch {
    let topic = context.check(Role::Reader).and_then(|()| topic.as_ref().map_err(ApiError::clone));
    let partition = topic.and_then(|topic| context.broker.partition(topic, asked.partition));
    if let Ok(partition) = &partition {
        context.connection.watch(partition);
    }
    PartitionFetch { partition, asked }
}

/// Reads at once if no disk is needed, else on a thread that may wait for it.
async fn look(asked: &Arc<FetchParams>, piece_bytes: usize) -> Result<ReadResult, ConnectionError> {
    if asked.wanted.iter().flatten().all(PartitionFetch::is_in_memory) {
        return Ok(asked.look(piece_bytes));
    }
    let asked = Arc::clone(asked);
    let looked = tokio::task::spawn_blocking(move || asked.look(piece_bytes));
    looked.await.map_err(|ended| ConnectionError::Io(std::io::Error::other(ended)))
}

impl PartitionFetch {
    fn is_in_memory(&self) -> bool {
        match (&self.partition, u64::try_from(self.asked.fetch_offset)) {
            (Ok(partition), Ok(from)) => partition.reads_from_memory(Offset(from)),
            // Neither is read.
            _ => true,
        }
    }
}

impl FetchParams {
    /// Reads at most `piece_bytes` of each partition's segments.
    fn look(&self, piece_bytes: usize) -> ReadResult {
        let found = Vec::with_capacity(self.wanted.len());
        let memory = self.memory.take(0);
        let mut round =
            ReadResult { found, bytes: 0, refused: false, in_pieces: false, files: 0, memory, lacks_memory: false };
        for topic in &self.wanted {
            let found = topic.iter().map(|wanted| self.look_at(wanted, piece_bytes, &mut round)).collect();
            round.found.push(found);
        }
        round
    }

    fn look_at(&self, wanted: &PartitionFetch, piece_bytes: usize, round: &mut ReadResult) -> FetchedPartition {
        let mut data = PartitionData::default().with_partition_index(wanted.asked.partition);
        data.aborted_transactions = (self.isolation == Isolation::Committed).then(Vec::new);
        let records = match self.read(wanted, piece_bytes, &mut data, round) {
            Ok(Some(records)) => records,
            Ok(None) => {
                round.lacks_memory = true;
                Vec::new()
            }
            Err(refusal) => {
                round.refused = true;
                data.error_code = refusal.code();
                Vec::new()
            }
        };
        let found = FetchedPartition { data, records };
        round.bytes += found.size_bytes();
        found
    }

    /// Records of one partition: at least one batch if none was found before, else what fits. `None` if there are some, and
    /// the memory budget has no room for them. What lies in segments stays there: it is checked and then sent from the page
    /// cache, and takes no memory.
    fn read(
        &self,
        wanted: &PartitionFetch,
        piece_bytes: usize,
        data: &mut PartitionData,
        round: &mut ReadResult,
    ) -> Result<Option<Vec<SendBuffer>>, ApiError> {
        (data.high_watermark, data.last_stable_offset, data.log_start_offset) = (-1, -1, -1);
        let partition = wanted.partition.as_ref().map_err(Clone::clone)?;
        let ends = partition.offsets();
        data.high_watermark = ends.high.0.cast_signed();
        data.last_stable_offset = ends.stable.0.cast_signed();
        data.log_start_offset = ends.first.0.cast_signed();
        let Ok(from) = u64::try_from(wanted.asked.fetch_offset) else {
            let why = format!("offset {} of {} cannot be", wanted.asked.fetch_offset, partition.id());
            return Err(ApiError::new(ResponseError::OffsetOutOfRange, why));
        };
        let own_limit = usize::try_from(wanted.asked.partition_max_bytes).unwrap_or(0);
        let (limit, is_first) = (own_limit.min(self.max_bytes.saturating_sub(round.bytes)), round.bytes == 0);
        if (limit == 0 && !is_first) || (self.isolation.end(&ends).0..=ends.tail.0).contains(&from) {
            return Ok(Some(Vec::new()));
        }
        let from = Offset(from);
        let is_on_disk = !partition.reads_from_memory(from);
        let is_piece = piece_bytes < limit && is_on_disk;
        round.in_pieces |= is_piece;
        let read_bytes = if is_piece { piece_bytes } else { limit };
        let span = Span { from, up_to: self.isolation.up_to(), limit, read_bytes, is_first };
        // For a piece of one segment only: a client that waits for more gets it read into memory. The read below reports any
        // failure.
        let may_be_sent = is_on_disk && piece_bytes < usize::MAX && round.files < FILES_MAX;
        let located = may_be_sent.then(|| partition.locate(from, read_bytes, span.up_to).ok().flatten());
        if let Some(located) = located.flatten() {
            round.files += 1;
            round.in_pieces = true;
            tell_aborted(data, &located.aborted);
            return Ok(Some(located.extents.into_iter().map(SendBuffer::Extent).collect()));
        }
        let Some(stored) = span.read(&**partition, &mut round.memory)? else { return Ok(None) };
        tell_aborted(data, &stored.aborted);
        Ok(Some(stored.batches.iter().map(|batch| SendBuffer::Bytes(batch.bytes().clone())).collect()))
    }
}

/// The range that one pass reads of one partition.
struct Span {
    from: Offset,
    up_to: UpTo,
    /// Bytes that the client accepts.
    limit: usize,
    /// Bytes that are read at most, unless one batch is larger.
    read_bytes: usize,
    /// No records were found before: at least one batch is read, whatever its size.
    is_first: bool,
}

impl Span {
    /// Nothing, if the first batch does not fit and there are others; `None` if the memory budget has no room.
    fn read(
        &self,
        partition: &dyn KafkaPartition,
        memory: &mut Option<Grant>,
    ) -> Result<Option<StoredBatches>, ApiError> {
        let limit = self.limit;
        let Some(memory) = memory else { return Ok(None) };
        if !memory.grow(limit as u64) {
            return Ok(None);
        }
        let stored = partition.read_stored(self.from, self.read_bytes, self.up_to).map_err(|e| {
            log_failure(&e);
            ApiError::from(&e)
        });
        let bytes = stored.as_ref().map_or(0, |stored| stored.batches.iter().map(RecordBatch::size_bytes).sum());
        let is_too_large = bytes > limit && !self.is_first;
        let lacking = bytes.saturating_sub(limit) as u64;
        memory.shrink(if is_too_large { limit } else { limit.saturating_sub(bytes) } as u64);
        let stored = stored?;
        if is_too_large {
            return Ok(Some(StoredBatches::default()));
        }
        if !memory.grow(lacking) {
            memory.shrink(limit as u64);
            return Ok(None);
        }
        Ok(Some(stored))
    }
}

/// Lists the `aborted` transactions for readers of committed records.
fn tell_aborted(data: &mut PartitionData, aborted: &[Aborted]) {
    if let Some(told) = &mut data.aborted_transactions {
        told.extend(aborted.iter().map(|of| {
            let first = of.first.0.cast_signed();
            AbortedTransaction::default().with_producer_id(ProducerId(of.producer_id)).with_first_offset(first)
        }));
    }
}

/// Clients get an error code only, no message. The log tells of damage itself, once for each place.
fn log_failure(error: &LogError) {
    if matches!(error, LogError::Io { .. }) {
        tracing::error!(%error, "stored records cannot be read");
    }
}
