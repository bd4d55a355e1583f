//! Fetching: stored batches go out as they lie; a client that waits costs a task and no thread.
//!
//! Who is far behind is answered in pieces: what is read from segments at a time, and written to the socket, is so much that
//! whoever has something to do for others meanwhile need not wait long for a core.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProducerId, TopicName};
use millstream_log::{AbortedTransaction as Aborted, Error as LogError, Partition, Stored, UpTo};
use millstream_types::{Grant, MemoryBudget, Offset, RecordBatch, Role, Traffic};
use tokio::time::{Instant, sleep_until};

use crate::caller::Caller;
use crate::error::Fault;
use crate::fetched::{Fetched, FetchedPartition};
use crate::isolation::Isolation;
use crate::parts::Part;
use crate::refusal::Refusal;

/// The longest that a client may wait.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How long a fetch rests for which the memory budget has no room.
const MEMORY_REST: Duration = Duration::from_millis(50);
/// What is read of a partition's segments for one answer, unless the client asks to wait for more.
const FROM_SEGMENTS_BYTES: usize = 512 << 10;

/// Partitions of one answer whose records are sent out of their file, which is open until they have gone; those of others are
/// read.
const FILES_MAX: usize = 8;

/// One partition that a client reads.
struct Wanted {
    partition: Result<Arc<dyn Partition>, Refusal>,
    asked: FetchPartition,
}

/// A fetch, as it was asked for.
struct Asked {
    /// Topic by topic.
    wanted: Vec<Vec<Wanted>>,
    max_bytes: usize,
    isolation: Isolation,
    memory: MemoryBudget,
}

/// What one look at all of them has found.
struct Round {
    /// As [`Wanted`], topic by topic.
    found: Vec<Vec<FetchedPartition>>,
    bytes: usize,
    refused: bool,
    /// Of some partition no more than a piece was read.
    in_pieces: bool,
    /// Partitions whose records are sent out of their file.
    files: usize,
    /// What the records take of the memory budget.
    memory: Option<Grant>,
    /// There was more, and no room for it.
    lacks_memory: bool,
}

/// Fetch.
pub(crate) async fn fetch(request: FetchRequest, caller: Caller) -> Result<Fetched, Fault> {
    caller.check_excess(Traffic::Fetch)?;
    let mut fetched = fetched(request, &caller).await?;
    let partitions = fetched.topics.iter().flat_map(|(_, partitions)| partitions);
    let bytes = partitions.map(FetchedPartition::size_bytes).sum();
    fetched.response.throttle_time_ms = caller.charge(Traffic::Fetch, bytes);
    Ok(fetched)
}

async fn fetched(request: FetchRequest, caller: &Caller) -> Result<Fetched, Fault> {
    if request.session_id != 0 {
        // Every fetch stands for itself: no session was ever handed out.
        let response = FetchResponse::default().with_error_code(ResponseError::FetchSessionIdNotFound.code());
        return Ok(Fetched { response, ..Fetched::default() });
    }
    let node = &caller.node;
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0).min(node.config.fetch_max_bytes);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let deadline = Instant::now() + wait;
    let names: Vec<TopicName> = request.topics.iter().map(|topic| topic.topic.clone()).collect();
    let wanted = request
        .topics
        .into_iter()
        .map(|topic| topic.partitions.into_iter().map(|asked| want(caller, &topic.topic, asked)).collect())
        .collect();
    let isolation = Isolation::from(request.isolation_level);
    let asked = Arc::new(Asked { wanted, max_bytes, isolation, memory: node.memory.clone() });
    let mut stopping = node.stopping.clone();
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
            () = caller.connection.bell.rung(), if !round.lacks_memory => {}
            () = sleep_until(again) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break Round { memory: None, ..round },
        }
    };
    if round.lacks_memory && round.bytes == 0 {
        caller.connection.tell_lack_of_memory(&node.memory);
    }
    let topics = names.into_iter().map(|name| FetchableTopicResponse::default().with_topic(name));
    Ok(Fetched { response: FetchResponse::default(), topics: topics.zip(round.found).collect(), memory: round.memory })
}

fn want(caller: &Caller, topic: &TopicName, asked: FetchPartition) -> Wanted {
    let partition = caller.check(Role::Reader).and_then(|()| caller.node.partition(topic, asked.partition));
    if let Ok(partition) = &partition {
        caller.connection.watch(partition);
    }
    Wanted { partition, asked }
}

/// Looks at once if no disk is needed, else on a thread that may wait for it.
async fn look(asked: &Arc<Asked>, piece_bytes: usize) -> Result<Round, Fault> {
    if asked.wanted.iter().flatten().all(Wanted::is_in_memory) {
        return Ok(asked.look(piece_bytes));
    }
    let asked = Arc::clone(asked);
    let looked = tokio::task::spawn_blocking(move || asked.look(piece_bytes));
    looked.await.map_err(|ended| Fault::Io(std::io::Error::other(ended)))
}

impl Wanted {
    fn is_in_memory(&self) -> bool {
        match (&self.partition, u64::try_from(self.asked.fetch_offset)) {
            (Ok(partition), Ok(from)) => partition.reads_from_memory(Offset(from)),
            // Neither is read.
            _ => true,
        }
    }
}

impl Asked {
    /// Reads at most `piece_bytes` of each partition's segments.
    fn look(&self, piece_bytes: usize) -> Round {
        let found = Vec::with_capacity(self.wanted.len());
        let memory = self.memory.take(0);
        let mut round =
            Round { found, bytes: 0, refused: false, in_pieces: false, files: 0, memory, lacks_memory: false };
        for topic in &self.wanted {
            let found = topic.iter().map(|wanted| self.look_at(wanted, piece_bytes, &mut round)).collect();
            round.found.push(found);
        }
        round
    }

    fn look_at(&self, wanted: &Wanted, piece_bytes: usize, round: &mut Round) -> FetchedPartition {
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
        wanted: &Wanted,
        piece_bytes: usize,
        data: &mut PartitionData,
        round: &mut Round,
    ) -> Result<Option<Vec<Part>>, Refusal> {
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
        // A piece of one segment: whoever waits for more is read it. What fails is told by the read below.
        let may_be_sent = is_on_disk && piece_bytes < usize::MAX && round.files < FILES_MAX;
        let located = may_be_sent.then(|| partition.locate(from, read_bytes, span.up_to).ok().flatten());
        if let Some(located) = located.flatten() {
            round.files += 1;
            round.in_pieces = true;
            tell_aborted(data, &located.aborted);
            return Ok(Some(located.extents.into_iter().map(Part::Extent).collect()));
        }
        let Some(stored) = span.read(&**partition, &mut round.memory)? else { return Ok(None) };
        tell_aborted(data, &stored.aborted);
        Ok(Some(stored.batches.iter().map(|batch| Part::Bytes(batch.bytes().clone())).collect()))
    }
}

/// What a look reads of one partition.
struct Span {
    from: Offset,
    up_to: UpTo,
    /// How much the client takes.
    limit: usize,
    /// How much is read at most, unless one batch has more.
    read_bytes: usize,
    /// Nothing was found before: at least one batch is read, however large it is.
    is_first: bool,
}

impl Span {
    /// Nothing, if the first batch does not fit and there are others; `None` if the memory budget has no room.
    fn read(&self, partition: &dyn Partition, memory: &mut Option<Grant>) -> Result<Option<Stored>, Refusal> {
        let limit = self.limit;
        let Some(memory) = memory else { return Ok(None) };
        if !memory.grow(limit as u64) {
            return Ok(None);
        }
        let stored = partition.read_stored(self.from, self.read_bytes, self.up_to).map_err(|e| {
            log_damage(&e);
            Refusal::from(&e)
        });
        let bytes = stored.as_ref().map_or(0, |stored| stored.batches.iter().map(RecordBatch::size_bytes).sum());
        let is_too_large = bytes > limit && !self.is_first;
        let lacking = bytes.saturating_sub(limit) as u64;
        memory.shrink(if is_too_large { limit } else { limit.saturating_sub(bytes) } as u64);
        let stored = stored?;
        if is_too_large {
            return Ok(Some(Stored::default()));
        }
        if !memory.grow(lacking) {
            memory.shrink(limit as u64);
            return Ok(None);
        }
        Ok(Some(stored))
    }
}

/// Tells of `aborted` those who read what is committed.
fn tell_aborted(data: &mut PartitionData, aborted: &[Aborted]) {
    if let Some(told) = &mut data.aborted_transactions {
        told.extend(aborted.iter().map(|of| {
            let first = of.first.0.cast_signed();
            AbortedTransaction::default().with_producer_id(ProducerId(of.producer_id)).with_first_offset(first)
        }));
    }
}

/// A client is told no more than a code.
fn log_damage(error: &LogError) {
    if matches!(error, LogError::Corrupt { .. } | LogError::Io { .. }) {
        tracing::error!(%error, "stored records cannot be read");
    }
}
