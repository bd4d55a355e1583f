//! Fetching: stored batches go out as they lie; a client that waits costs a task and no thread.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProducerId, TopicName};
use millstream_log::{Error as LogError, Partition, Stored, UpTo};
use millstream_types::{Offset, RecordBatch, Role, Traffic};
use tokio::time::{Instant, sleep_until};

use crate::caller::Caller;
use crate::error::Fault;
use crate::isolation::Isolation;
use crate::refusal::Refusal;

/// The longest that a client may wait.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// One partition that a client reads.
struct Wanted {
    partition: Result<Arc<dyn Partition>, Refusal>,
    asked: FetchPartition,
}

/// What one look at all of them has found.
struct Round {
    /// As [`Wanted`], topic by topic.
    found: Vec<Vec<PartitionData>>,
    bytes: usize,
    refused: bool,
}

/// Fetch.
pub(crate) async fn fetch(request: FetchRequest, caller: Caller) -> Result<Option<FetchResponse>, Fault> {
    caller.check_excess(Traffic::Fetch)?;
    let response = fetched(request, &caller).await;
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes = partitions.filter_map(|partition| partition.records.as_ref()).map(Bytes::len).sum();
    Ok(Some(response.with_throttle_time_ms(caller.charge(Traffic::Fetch, bytes))))
}

async fn fetched(request: FetchRequest, caller: &Caller) -> FetchResponse {
    if request.session_id != 0 {
        // Every fetch stands for itself: no session was ever handed out.
        return FetchResponse::default().with_error_code(ResponseError::FetchSessionIdNotFound.code());
    }
    let node = &caller.node;
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(node.config.fetch_max_bytes);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let deadline = Instant::now() + wait;
    let names: Vec<TopicName> = request.topics.iter().map(|topic| topic.topic.clone()).collect();
    let wanted: Vec<Vec<Wanted>> = request
        .topics
        .into_iter()
        .map(|topic| topic.partitions.into_iter().map(|asked| want(caller, &topic.topic, asked)).collect())
        .collect();
    let isolation = Isolation::from(request.isolation_level);
    let mut stopping = node.stopping.clone();
    let round = loop {
        let round = look(&wanted, max_bytes, isolation).await;
        if round.bytes >= min_bytes.min(max_bytes) || round.refused || Instant::now() >= deadline {
            break round;
        }
        tokio::select! {
            () = caller.connection.bell.rung() => {}
            () = sleep_until(deadline) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break round,
        }
    };
    let topics = names.into_iter().zip(round.found);
    let topics = topics.map(|(name, found)| FetchableTopicResponse::default().with_topic(name).with_partitions(found));
    FetchResponse::default().with_responses(topics.collect())
}

fn want(caller: &Caller, topic: &TopicName, asked: FetchPartition) -> Wanted {
    let partition = caller.check(Role::Reader).and_then(|()| caller.node.partition(topic, asked.partition));
    if let Ok(partition) = &partition {
        caller.connection.watch(partition);
    }
    Wanted { partition, asked }
}

async fn look(wanted: &[Vec<Wanted>], max_bytes: usize, isolation: Isolation) -> Round {
    let mut round = Round { found: Vec::with_capacity(wanted.len()), bytes: 0, refused: false };
    for topic in wanted {
        let mut found = Vec::with_capacity(topic.len());
        for wanted in topic {
            let mut data = PartitionData::default().with_partition_index(wanted.asked.partition);
            data.aborted_transactions = (isolation == Isolation::Committed).then(Vec::new);
            let room = (max_bytes.saturating_sub(round.bytes), round.bytes == 0);
            match read(wanted, room, isolation, &mut data).await {
                Ok(records) => {
                    round.bytes += records.len();
                    data.records = Some(records);
                }
                Err(refusal) => {
                    round.refused = true;
                    data.error_code = refusal.code();
                    data.records = Some(Bytes::new());
                }
            }
            found.push(data);
        }
        round.found.push(found);
    }
    round
}

/// Records of one partition: at least one batch if none was found before, else what fits.
async fn read(
    wanted: &Wanted,
    (room, is_first): (usize, bool),
    isolation: Isolation,
    data: &mut PartitionData,
) -> Result<Bytes, Refusal> {
    (data.high_watermark, data.last_stable_offset, data.log_start_offset) = (-1, -1, -1);
    let partition = wanted.partition.as_ref().map_err(Clone::clone)?;
    let ends = partition.offsets();
    data.high_watermark = ends.high.0.cast_signed();
    data.last_stable_offset = ends.stable.0.cast_signed();
    data.log_start_offset = ends.first.0.cast_signed();
    let Ok(from) = u64::try_from(wanted.asked.fetch_offset) else {
        let why = format!("offset {} of {} cannot be", wanted.asked.fetch_offset, partition.id());
        return Err(Refusal::new(ResponseError::OffsetOutOfRange, why));
    };
    let own_limit = usize::try_from(wanted.asked.partition_max_bytes).unwrap_or(0);
    let limit = own_limit.min(room);
    if (limit == 0 && !is_first) || (isolation.end(&ends).0..=ends.tail.0).contains(&from) {
        return Ok(Bytes::new());
    }
    let stored = read_stored(partition, Offset(from), limit, isolation.up_to()).await.map_err(|e| {
        log_damage(&e);
        Refusal::from(&e)
    })?;
    let size = stored.batches.iter().map(RecordBatch::size_bytes).sum::<usize>();
    if size > limit && !is_first {
        return Ok(Bytes::new());
    }
    if let Some(aborted) = &mut data.aborted_transactions {
        aborted.extend(stored.aborted.iter().map(|of| {
            let first = of.first.0.cast_signed();
            AbortedTransaction::default().with_producer_id(ProducerId(of.producer_id)).with_first_offset(first)
        }));
    }
    Ok(joined(&stored.batches, size))
}

async fn read_stored(
    partition: &Arc<dyn Partition>,
    from: Offset,
    max_bytes: usize,
    up_to: UpTo,
) -> Result<Stored, LogError> {
    if partition.reads_from_memory(from) {
        return partition.read_stored(from, max_bytes, up_to);
    }
    let partition = Arc::clone(partition);
    let read = tokio::task::spawn_blocking(move || partition.read_stored(from, max_bytes, up_to));
    read.await.unwrap_or(Err(LogError::Stopped))
}

/// A client is told no more than a code.
fn log_damage(error: &LogError) {
    if matches!(error, LogError::Corrupt { .. } | LogError::Io { .. }) {
        tracing::error!(%error, "stored records cannot be read");
    }
}

fn joined(batches: &[RecordBatch], size: usize) -> Bytes {
    if let [only] = batches {
        return only.bytes().clone();
    }
    let mut all = BytesMut::with_capacity(size);
    batches.iter().for_each(|batch| all.extend_from_slice(batch.bytes()));
    all.freeze()
}
