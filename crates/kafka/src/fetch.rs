//! Fetching: stored batches go out as they lie; a client that waits costs a task and no thread.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProducerId, TopicName};
use millstream_log::{Error as LogError, Partition, Stored, UpTo};
use millstream_types::{Grant, MemoryBudget, Offset, RecordBatch, Role, Traffic};
use tokio::time::{Instant, sleep_until};

use crate::caller::Caller;
use crate::error::Fault;
use crate::fetched::{Fetched, FetchedPartition};
use crate::isolation::Isolation;
use crate::refusal::Refusal;

/// The longest that a client may wait.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How long a fetch rests for which the memory budget has no room.
const MEMORY_REST: Duration = Duration::from_millis(50);

/// One partition that a client reads.
struct Wanted {
    partition: Result<Arc<dyn Partition>, Refusal>,
    asked: FetchPartition,
}

/// What one look at all of them has found.
struct Round {
    /// As [`Wanted`], topic by topic.
    found: Vec<Vec<FetchedPartition>>,
    bytes: usize,
    refused: bool,
    /// What the records take of the memory budget.
    memory: Option<Grant>,
    /// There was more, and no room for it.
    lacks_memory: bool,
}

/// Fetch.
pub(crate) async fn fetch(request: FetchRequest, caller: Caller) -> Result<Fetched, Fault> {
    caller.check_excess(Traffic::Fetch)?;
    let mut fetched = fetched(request, &caller).await;
    let partitions = fetched.topics.iter().flat_map(|(_, partitions)| partitions);
    let bytes = partitions.map(|partition| size_bytes(&partition.batches)).sum();
    fetched.response.throttle_time_ms = caller.charge(Traffic::Fetch, bytes);
    Ok(fetched)
}

async fn fetched(request: FetchRequest, caller: &Caller) -> Fetched {
    if request.session_id != 0 {
        // Every fetch stands for itself: no session was ever handed out.
        let response = FetchResponse::default().with_error_code(ResponseError::FetchSessionIdNotFound.code());
        return Fetched { response, ..Fetched::default() };
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
        let round = look(&wanted, max_bytes, isolation, &node.memory).await;
        let has_all_it_can = round.bytes >= min_bytes.min(max_bytes) || round.lacks_memory && round.bytes > 0;
        if has_all_it_can || round.refused || Instant::now() >= deadline {
            break round;
        }
        let again = if round.lacks_memory { deadline.min(Instant::now() + MEMORY_REST) } else { deadline };
        drop(round.memory);
        tokio::select! {
            () = caller.connection.bell.rung(), if !round.lacks_memory => {}
            () = sleep_until(again) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break Round { memory: None, ..round },
        }
    };
    if round.lacks_memory && round.bytes == 0 {
        caller.connection.tell_lack_of_memory(&node.memory);
    }
    let topics = names.into_iter().map(|name| FetchableTopicResponse::default().with_topic(name));
    Fetched { response: FetchResponse::default(), topics: topics.zip(round.found).collect(), memory: round.memory }
}

fn want(caller: &Caller, topic: &TopicName, asked: FetchPartition) -> Wanted {
    let partition = caller.check(Role::Reader).and_then(|()| caller.node.partition(topic, asked.partition));
    if let Ok(partition) = &partition {
        caller.connection.watch(partition);
    }
    Wanted { partition, asked }
}

async fn look(wanted: &[Vec<Wanted>], max_bytes: usize, isolation: Isolation, memory: &MemoryBudget) -> Round {
    let found = Vec::with_capacity(wanted.len());
    let mut round = Round { found, bytes: 0, refused: false, memory: memory.take(0), lacks_memory: false };
    for topic in wanted {
        let mut found = Vec::with_capacity(topic.len());
        for wanted in topic {
            let mut data = PartitionData::default().with_partition_index(wanted.asked.partition);
            data.aborted_transactions = (isolation == Isolation::Committed).then(Vec::new);
            let room = (max_bytes.saturating_sub(round.bytes), round.bytes == 0);
            let batches = match read(wanted, room, isolation, &mut data, round.memory.as_mut()).await {
                Ok(Some(batches)) => batches,
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
            round.bytes += size_bytes(&batches);
            found.push(FetchedPartition { data, batches });
        }
        round.found.push(found);
    }
    round
}

/// Records of one partition: at least one batch if none was found before, else what fits. `None` if there are some, and
/// the memory budget has no room for them.
async fn read(
    wanted: &Wanted,
    (room, is_first): (usize, bool),
    isolation: Isolation,
    data: &mut PartitionData,
    memory: Option<&mut Grant>,
) -> Result<Option<Vec<RecordBatch>>, Refusal> {
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
        return Ok(Some(Vec::new()));
    }
    let Some(memory) = memory else { return Ok(None) };
    if !memory.grow(limit as u64) {
        return Ok(None);
    }
    let stored = read_stored(partition, Offset(from), limit, isolation.up_to()).await.map_err(|e| {
        log_damage(&e);
        Refusal::from(&e)
    });
    let bytes = stored.as_ref().map_or(0, |stored| size_bytes(&stored.batches));
    let is_too_large = bytes > limit && !is_first;
    let lacking = bytes.saturating_sub(limit) as u64;
    memory.shrink(if is_too_large { limit } else { limit.saturating_sub(bytes) } as u64);
    let stored = stored?;
    if is_too_large {
        return Ok(Some(Vec::new()));
    }
    if !memory.grow(lacking) {
        memory.shrink(limit as u64);
        return Ok(None);
    }
    if let Some(aborted) = &mut data.aborted_transactions {
        aborted.extend(stored.aborted.iter().map(|of| {
            let first = of.first.0.cast_signed();
            AbortedTransaction::default().with_producer_id(ProducerId(of.producer_id)).with_first_offset(first)
        }));
    }
    Ok(Some(stored.batches))
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

fn size_bytes(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::size_bytes).sum()
}
