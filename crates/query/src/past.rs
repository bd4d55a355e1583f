//! Queries that begin with records that are there already: a thread of its own reads these for each, so that no other query
//! waits, and hands it over to those that read what comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use millstream_log::{Error as LogError, Offsets, Partition};
use millstream_types::Offset;

use crate::keeping::{Places, Reached};
use crate::live::{Clocks, Live};
use crate::progress::Reading;
use crate::registry::Registry;
use crate::replay::Replay;
use crate::stream::Stream;
use crate::tailed::Broken;
use crate::{Engine, Error, Start};

/// How often it is looked whether a client has taken what it was given.
const LOOK: Duration = Duration::from_millis(5);
/// Of what comes meanwhile most is read here, too: the rest is read by threads that others wait for.
const ROUNDS: usize = 3;

/// A beginning in the past, with one of the places that there are for such.
pub(crate) struct Past {
    pub(crate) places: Places,
    permit: Permit,
}

/// One of those that read the past; counts as long as it lives.
struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Where a query of the stream begins, unless that is now.
    pub(crate) async fn past(&self, stream: &Arc<Stream>, from: &Start) -> Result<Option<Past>, Error> {
        if *from == Start::Now {
            return Ok(None);
        }
        let limit = self.config.reading_past_max;
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        let is_free = self.in_the_past.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        let permit = is_free.then(|| Permit(self.in_the_past.clone())).ok_or(Error::TooManyInThePast { limit })?;
        let (of, from) = (stream.clone(), from.clone());
        let places = tokio::task::spawn_blocking(move || places(&of, &from)).await.unwrap_or(Err(Error::Stopped))?;
        Ok(Some(Past { places, permit }))
    }

    /// Has a query see what has been appended up to now, and then what comes.
    pub(crate) fn read_past(&self, query: Arc<Live>, past: Past) -> Result<(), Error> {
        query.matched.store(true, Ordering::Release);
        let (registry, clocks, max_bytes) = (self.registry.clone(), self.clocks.clone(), self.config.read_max_bytes);
        let permit = past.permit;
        let run = move || {
            registry.resumed(std::slice::from_ref(&query));
            if let Err(broken) = read(&registry, &query, &clocks, max_bytes) {
                return registry.end_broken(&query, &broken);
            }
            drop(permit);
            registry.resume(&[query].into()).into_iter().for_each(|read| drop(read.blocking_recv()));
        };
        let thread = thread::Builder::new().name("query-past".to_owned()).spawn(run).map_err(Error::Thread)?;
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }
}

/// Where it begins in each partition.
fn places(stream: &Stream, from: &Start) -> Result<Places, Error> {
    if let Start::Offsets(offsets) = from {
        let last = stream.partitions.len();
        if let Some(unknown) = offsets.keys().find(|partition| **partition as usize >= last) {
            let what = format!("stream '{}' has partitions 0 to {}, not {unknown}", stream.topic.name, last - 1);
            return Err(Error::Start { what });
        }
    }
    let unreadable = |source| Error::Log { stream: stream.topic.name.clone(), source: Box::new(source) };
    let each = stream.partitions.iter().map(|partition| {
        let Offsets { first, tail, epoch, .. } = partition.offsets();
        let wanted = place(&**partition, from, first, tail).map_err(unreadable)?;
        if wanted > tail {
            let what = format!("{wanted} of {} is not there yet; the next one is {tail}", partition.id());
            return Err(Error::Start { what });
        }
        let start = wanted.max(first).0;
        let counted = Reading { skipped: start - wanted.0, next: start, ..Reading::default() };
        Ok((partition.id().partition, Reached { epoch, first: start, counted }))
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

/// Reads one partition after the other, as fast as the query's client takes what that gives.
fn read(registry: &Registry, query: &Arc<Live>, clocks: &Clocks, read_max_bytes: usize) -> Result<(), Broken> {
    for _ in 0..ROUNDS {
        for partition in &query.stream.partitions {
            let end = partition.offsets().tail;
            let mut replay = Replay::new(partition, std::slice::from_ref(query), end, 0, read_max_bytes);
            loop {
                while query.outbox.is_crowded() {
                    thread::sleep(LOOK);
                }
                if query.outbox.has_ended() {
                    return Ok(());
                }
                let mut finished = Vec::new();
                let is_more = replay.step(clocks.wall.now_ms(), &mut finished)?;
                registry.finish(finished);
                if !is_more {
                    break;
                }
            }
        }
    }
    Ok(())
}
