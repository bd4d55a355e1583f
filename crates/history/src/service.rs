//! Serves requests: waits until history covers every change answered before, then runs the read or
//! deletion on a worker thread.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{AnswerMemory, Deadline, Problem, Reason, Workers};
use millstream_log::Log;
use millstream_types::{ErrorCode, Offset, PartitionId, TenantId, TopicKind, TopicName, TopicPartition};
use tokio::sync::oneshot;

use crate::Error;
use crate::catalog_record::Erasure;
use crate::error::failed;
use crate::index_cache::IndexCache;
use crate::page::TemporalResult;
use crate::query::{EntityRef, PointExtent, ResultForm, SeriesQuery, TimeWindow};
use crate::read::{ReadLimits, SnapshotReader};
use crate::render::{MediaType, render};
use crate::request::TemporalQuery;
use crate::state::{ErasureRequest, HistoryState, SourcePartition};

/// A read of one entity with at most this many points per attribute runs on the quick worker.
const QUICK_POINTS: usize = 1_000;

/// Limit of pending deletions, because every read checks all of them.
const ERASURES_MAX: usize = 1_000;

/// The state that all requests share.
pub(crate) struct HistoryService {
    pub(crate) state: Arc<HistoryState>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) cache: Arc<IndexCache>,
    pub(crate) limits: ReadLimits,
    pub(crate) timeout_ms: u64,
    pub(crate) requests_max_waiting: usize,
    /// False if `history.enabled` is off: reads do not wait for changes then.
    pub(crate) follows: bool,
    /// Runs short reads of one entity, such as those of a chart.
    pub(crate) quick: Workers,
    pub(crate) background: Workers,
}

pub(crate) struct TemporalResponse {
    pub(crate) text: String,
    pub(crate) media: MediaType,
    pub(crate) total: Option<usize>,
    /// The time range that the answer covers, if it was truncated.
    pub(crate) cut: Option<(i64, i64)>,
    pub(crate) memory: AnswerMemory,
}

impl HistoryService {
    /// Answers a temporal query.
    pub(crate) async fn read(
        self: &Arc<Self>,
        query: TemporalQuery,
        memory: AnswerMemory,
        deadline: Deadline,
    ) -> Result<TemporalResponse, Problem> {
        let is_quick = query.shape.is_single && is_short(&query.series.form);
        let tenant = query.series.selection.tenant.clone();
        self.run(&tenant, is_quick, deadline, move |reader| answer(reader, &query, memory)).await
    }

    /// Calls `work` on a worker thread with a reader of all changes that were durable when this was called. `is_quick` if it
    /// reads few points of one entity.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        tenant: &TenantId,
        is_quick: bool,
        deadline: Deadline,
        work: impl FnOnce(&SnapshotReader<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.caught_up(tenant).await?;
        let workers = if is_quick { &self.quick } else { &self.background };
        let service = self.clone();
        let done = workers
            .submit(Some(tenant), move || {
                let (snapshot, cache, state) = (service.state.snapshot(), &service.cache, &service.state);
                work(&SnapshotReader { snapshot: &snapshot, cache, state, limits: service.limits, deadline })
            })
            .map_err(|full| self.full(full.waiting))?;
        done.await.map_err(|_| failed(Error::Stopped))?
    }

    /// Waits until history contains every change that was durable when the request arrived.
    async fn caught_up(&self, tenant: &TenantId) -> Result<(), Problem> {
        let name = TopicName::reserved(TopicKind::Context, tenant);
        let Some(topic) = self.log.topic(&name).filter(|_| self.follows) else { return Ok(()) };
        let mut ends: Vec<(SourcePartition, Offset)> = Vec::new();
        for number in 0..topic.config.partitions {
            let id = TopicPartition::new(name.clone(), number);
            if let Some(failure) = self.state.failure(&id.to_string()) {
                return Err(Problem::new(Reason::Code(ErrorCode::Unavailable), failure));
            }
            let partition = self.log.partition(&id).map_err(|error| failed(error.into()))?;
            ends.push(((topic.id, PartitionId(number)), partition.offsets().stable));
        }
        self.state.reached(&ends).await;
        Ok(())
    }

    /// Deletes all points that were answered before this call; the deletion is durable on return.
    pub(crate) async fn erase(&self, tenant: &TenantId, erasure: Erasure) -> Result<(), Problem> {
        self.caught_up(tenant).await?;
        let not_carried_out = Taken::of(&self.state.files().erasures, |erasure| erasure.tenant == tenant.as_str());
        if not_carried_out.is_full(ERASURES_MAX) {
            return Err(Problem::new(Reason::Code(ErrorCode::Overloaded), "too many deletions are in progress")
                .value(not_carried_out.own)
                .rule(format!(
                    "at most {ERASURES_MAX} at a time, because each rewrites files, and a tenant takes no more than it \
                     leaves free"
                ))
                .remedy("try again later; delete whole types or entities instead of many attributes"));
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.state.erasures.lock();
            let taken = Taken::of(&waiting, |request| request.erasure.tenant == tenant.as_str());
            if taken.is_full(self.requests_max_waiting) {
                return Err(self.full(taken.own));
            }
            if self.state.is_stopping() {
                return Err(failed(Error::Stopped));
            }
            waiting.push(ErasureRequest { erasure, answer });
        }
        self.state.compactor_bell.ring();
        answered.await.map_err(|_| failed(Error::Stopped))?.map_err(failed)
    }

    fn full(&self, waiting: usize) -> Problem {
        Problem::new(Reason::Code(ErrorCode::Overloaded), "too many requests wait for history")
            .value(waiting)
            .rule(format!(
                "history.requests_max_waiting = {}, of which a tenant takes no more than it leaves free",
                self.requests_max_waiting
            ))
            .remedy("try again later")
            .retry_after(Duration::from_secs(1))
    }
}

/// `true` if a read of one entity in this form runs on the quick worker.
pub(crate) fn is_short(form: &ResultForm) -> bool {
    matches!(form, ResultForm::Points(PointExtent::First(points) | PointExtent::Last(points)) if *points <= QUICK_POINTS)
}

fn answer(
    reader: &SnapshotReader<'_>,
    query: &TemporalQuery,
    mut memory: AnswerMemory,
) -> Result<TemporalResponse, Problem> {
    let TemporalQuery { series, page, shape } = query;
    let (entities, total) = if shape.is_single {
        let id = series.selection.ids.first().map(String::as_str).unwrap_or_default();
        (vec![the_entity(reader, series)?.ok_or_else(|| no_history(id))?], 1)
    } else {
        reader.entities(&series.selection, &series.window, *page)?
    };
    let found = reader.read(&entities, series, &mut memory)?;
    let text = render(&entities, &found, shape, &mut memory)?;
    let cut = if let TemporalResult::Points(points) = &found { points.cut } else { None };
    Ok(TemporalResponse { text, media: shape.media, total: page.counts.then_some(total), cut, memory })
}

/// Returns the entity of the one id that a query selects; `None` if it has no history at all. It is a problem if the id names
/// several entities within the asked time.
pub(crate) fn the_entity(reader: &SnapshotReader<'_>, query: &SeriesQuery) -> Result<Option<EntityRef>, Problem> {
    let mut entities = reader.entities_of_id(&query.selection, &query.window)?;
    if entities.is_empty() {
        // The entity may have points at other times.
        entities = reader.entities_of_id(&query.selection, &TimeWindow::default())?;
        entities.truncate(1);
    }
    if entities.len() > 1 {
        return Err(several(query.selection.id_bounds().0));
    }
    Ok(entities.pop())
}

/// Places that are taken: those of a tenant, and all.
struct Taken {
    own: usize,
    all: usize,
}

impl Taken {
    fn of<T>(places: &[T], is_own: impl Fn(&&T) -> bool) -> Self {
        Self { own: places.iter().filter(is_own).count(), all: places.len() }
    }

    /// `true` if the tenant already has as many of `limit` places as it leaves free.
    fn is_full(&self, limit: usize) -> bool {
        self.own >= limit.saturating_sub(self.all)
    }
}

fn no_history(id: &str) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), "the entity has no history in this tenant and service path")
        .value(id)
        .remedy("check id, type and attribute")
}

fn several(id: &str) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Conflict), "the id names several entities")
        .value(id)
        .rule("one id with two types, or in two service paths, is two entities")
        .remedy("add type, or Fiware-ServicePath")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_no_more_places_than_it_leaves_free() {
        let is_full = |places: &str, limit| Taken::of(places.as_bytes(), |place| **place == b'm').is_full(limit);
        assert!(!is_full("", 4));
        assert!(!is_full("m", 4));
        assert!(is_full("mm", 4));
        assert!(!is_full("oo", 4), "another takes what is left");
        assert!(is_full("oom", 4));
        assert!(is_full("oooo", 4));
        assert!(is_full("", 0));
    }
}
