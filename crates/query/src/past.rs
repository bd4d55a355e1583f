//! Queries that begin with past records. A thread for each query reads these, so that no other query waits, and hands the
//! query over to the threads that read new records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use millstream_log::{Error as LogError, Offsets, Partition};
use millstream_types::Offset;

use crate::clocks::Clocks;
use crate::durable_state::{PartitionPositions, PartitionProgress};
use crate::live::{LiveQuery, LiveStream};
use crate::past_end::UNTIL;
use crate::progress::ProgressCounters;
use crate::read_error::ReadError;
use crate::registry::QueryRegistry;
use crate::replay::Replay;
use crate::{Cause, Engine, Error, QueryRequest, Start, Until};

/// The members of a request that say where it begins and ends.
const FROM: &str = "from";

/// Interval at which a full outbox is checked.
const LOOK: Duration = Duration::from_millis(5);
/// Rounds over records that arrive meanwhile: the fewer are left, the less the shared threads have to replay.
const ROUNDS: usize = 3;

/// The start of a query in the past, and its permit.
pub(crate) struct Past {
    pub(crate) places: PartitionPositions,
    /// The end in each partition; `None` if the query continues with new records.
    ends: Option<Vec<Offset>>,
    permit: Permit,
}

/// The permit of one query to read the past, released on drop.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// The start and end of a query in the past; `None` if it begins with new records.
    pub(crate) async fn past(
        &self,
        stream: &Arc<LiveStream>,
        request: &QueryRequest,
        until: Option<Until>,
    ) -> Result<Option<Past>, Error> {
        let from = &request.from;
        if *from == Start::Now {
            return Ok(None);
        }
        let limit = self.config.reading_past_max;
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        let is_free = self.in_the_past.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        let permit = is_free.then(|| Permit(self.in_the_past.clone())).ok_or(Error::TooManyInThePast { limit })?;
        let (of, from, now_ms) = (stream.clone(), from.clone(), self.clocks.wall.now_ms());
        let look = move || {
            let ends = until.map(|until| ends(&of, &until, now_ms)).transpose()?;
            Ok((places(&of, &from)?, ends))
        };
        let (places, ends) = tokio::task::spawn_blocking(look).await.unwrap_or(Err(Error::Stopped))?;
        Ok(Some(Past { places, ends, permit }))
    }

    /// Reads past records for a query, which then continues with new ones.
    pub(crate) fn read_past(&self, query: Arc<LiveQuery>, past: Past) -> Result<(), Error> {
        query.matched.store(true, Ordering::Release);
        let (registry, clocks, max_bytes) = (self.registry.clone(), self.clocks.clone(), self.config.read_max_bytes);
        let (permit, ends) = (past.permit, past.ends);
        let run = move || {
            registry.resumed(std::slice::from_ref(&query));
            let read = match &ends {
                Some(ends) => read_once(&registry, &query, ends, &clocks, max_bytes),
                None => (0..ROUNDS).try_for_each(|_| {
                    let tails: Vec<Offset> = query.stream.partitions.iter().map(|part| part.offsets().tail).collect();
                    read_once(&registry, &query, &tails, &clocks, max_bytes)
                }),
            };
            if let Err(broken) = read {
                return registry.end_broken(&query, &broken);
            }
            drop(permit);
            if ends.is_some() {
                return registry.end(&query, Cause::Until, None);
            }
            registry.resume(&[query].into()).into_iter().for_each(|read| drop(read.blocking_recv()));
        };
        let thread = thread::Builder::new().name("query-past".to_owned()).spawn(run).map_err(Error::Thread)?;
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }
}

/// Refuses offsets of partitions that there are not.
fn check_partitions(stream: &LiveStream, member: &'static str, offsets: &BTreeMap<u32, u64>) -> Result<(), Error> {
    let last = stream.partitions.len();
    let Some(unknown) = offsets.keys().find(|partition| **partition as usize >= last) else { return Ok(()) };
    let what = format!("stream '{}' has partitions 0 to {}, not {unknown}", stream.topic.name, last - 1);
    Err(Error::Start { member, what })
}

/// The end of the query in each partition.
fn ends(stream: &LiveStream, until: &Until, now_ms: i64) -> Result<Vec<Offset>, Error> {
    match until {
        Until::TimeMs(time_ms) if *time_ms > now_ms => {
            let what = format!("{time_ms} is yet to come (now it is {now_ms}); use 'duration_ms' to wait for records");
            return Err(Error::Start { member: UNTIL, what });
        }
        Until::Offsets(offsets) => check_partitions(stream, UNTIL, offsets)?,
        _ => {}
    }
    let unreadable = |source| Error::Log { stream: stream.topic.name.clone(), source: Box::new(source) };
    let end = |partition: &Arc<dyn Partition>| {
        let tail = partition.offsets().tail;
        Ok(match until {
            Until::TimeMs(time_ms) => partition.offset_at(*time_ms).map_err(unreadable)?.unwrap_or(tail),
            Until::Offsets(offsets) => match offsets.get(&partition.id().partition.0) {
                Some(offset) if *offset > tail.0 => {
                    let what = format!("{offset} of {} is not there yet; the next one is {tail}", partition.id());
                    return Err(Error::Start { member: UNTIL, what });
                }
                offset => offset.map_or(tail, |offset| Offset(*offset)),
            },
            Until::Now | Until::Never => tail,
        })
    };
    stream.partitions.iter().map(end).collect()
}

/// The start of the query in each partition.
fn places(stream: &LiveStream, from: &Start) -> Result<PartitionPositions, Error> {
    if let Start::Offsets(offsets) = from {
        check_partitions(stream, FROM, offsets)?;
    }
    let unreadable = |source| Error::Log { stream: stream.topic.name.clone(), source: Box::new(source) };
    let each = stream.partitions.iter().map(|partition| {
        let Offsets { first, tail, epoch, .. } = partition.offsets();
        let wanted = place(&**partition, from, first, tail).map_err(unreadable)?;
        if wanted > tail {
            let what = format!("{wanted} of {} is not there yet; the next one is {tail}", partition.id());
            return Err(Error::Start { member: FROM, what });
        }
        let start = wanted.max(first).0;
        let counted = ProgressCounters { skipped: start - wanted.0, next: start, ..ProgressCounters::default() };
        Ok((partition.id().partition, PartitionProgress { epoch, first: start, counted }))
    });
    each.collect()
}

fn place(partition: &dyn Partition, from: &Start, first: Offset, tail: Offset) -> Result<Offset, LogError> {
    Ok(match from {
        Start::Now => tail,
        Start::Earliest => first,
        Start::TimeMs(time_ms) => partition.offset_at(*time_ms)?.unwrap_or(tail),
        Start::Offsets(offsets) => offsets.get(&partition.id().partition.0).map_or(tail, |offset| Offset(*offset)),
    })
}

/// Reads all partitions up to their ends, as fast as the query's client takes the rows: one after the other, or the one whose event
/// time is furthest behind.
fn read_once(
    registry: &QueryRegistry,
    query: &Arc<LiveQuery>,
    ends: &[Offset],
    clocks: &Clocks,
    read_max_bytes: usize,
) -> Result<(), ReadError> {
    let replay = |(partition, end)| {
        Replay::new(partition, std::slice::from_ref(query), end, 0, read_max_bytes, &registry.totals)
    };
    let mut replays: Vec<Replay<'_>> = query.stream.partitions.iter().zip(ends.iter().copied()).map(replay).collect();
    while !replays.is_empty() {
        while query.outbox.is_crowded() {
            thread::sleep(LOOK);
        }
        if query.outbox.has_ended() {
            return Ok(());
        }
        let behind = query.furthest_behind();
        let next = replays.iter().position(|replay| Some(replay.partition()) == behind).unwrap_or(0);
        let mut finished = Vec::new();
        let is_more = replays[next].step(clocks.wall.now_ms(), &mut finished)?;
        registry.finish(finished);
        if !is_more {
            query.has_caught_up(replays.remove(next).partition());
        }
    }
    Ok(())
}
