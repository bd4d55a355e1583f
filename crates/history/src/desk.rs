//! Where requests are taken in: a read waits until history has every change that was answered before, then a thread does it.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{AnswerMemory, Deadline, Problem, Reason, Workers};
use millstream_log::Log;
use millstream_types::{ErrorCode, Kind, Offset, PartitionId, TenantId, TopicName, TopicPartition};
use tokio::sync::oneshot;

use crate::Error;
use crate::ask::Form;
use crate::catalog_record::Erasure;
use crate::index_cache::IndexCache;
use crate::page::Found;
use crate::read::{ReadLimits, Reader, failed};
use crate::render::{Media, render};
use crate::request::Asked;
use crate::shared::{ErasureAsked, Shared, Source};

/// Points of each attribute up to which a read of one entity does not go to the background.
const QUICK_POINTS: usize = 1_000;

/// Deletions whose files are not rewritten yet: every read looks at all of them.
const ERASURES_MAX: usize = 1_000;

/// What all requests share.
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) cache: Arc<IndexCache>,
    pub(crate) limits: ReadLimits,
    pub(crate) timeout_ms: u64,
    pub(crate) requests_max_waiting: usize,
    /// Whether changes are followed at all.
    pub(crate) follows: bool,
    /// For what somebody waits for who looks at a chart.
    pub(crate) quick: Workers,
    /// For everything else.
    pub(crate) background: Workers,
}

/// A rendered answer.
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) media: Media,
    pub(crate) total: Option<usize>,
    /// The time that it covers, if there was more.
    pub(crate) cut: Option<(i64, i64)>,
    pub(crate) memory: AnswerMemory,
}

impl Desk {
    /// Answers a read.
    pub(crate) async fn read(
        self: &Arc<Self>,
        asked: Asked,
        memory: AnswerMemory,
        deadline: Deadline,
    ) -> Result<Answered, Problem> {
        self.caught_up(&asked.selection.tenant).await?;
        let is_quick =
            asked.shape.is_single && matches!(asked.form, Form::Points { last: Some(last) } if last <= QUICK_POINTS);
        let workers = if is_quick { &self.quick } else { &self.background };
        let desk = self.clone();
        let done =
            workers.submit(move || desk.answer(&asked, memory, deadline)).map_err(|full| self.full(full.waiting))?;
        done.await.map_err(|_| failed(Error::Stopped))?
    }

    /// Waits until everything is in history that was durable when the request came.
    async fn caught_up(&self, tenant: &TenantId) -> Result<(), Problem> {
        let name = TopicName::reserved(Kind::Context, tenant);
        let Some(topic) = self.log.topic(&name).filter(|_| self.follows) else { return Ok(()) };
        let mut ends: Vec<(Source, Offset)> = Vec::new();
        for number in 0..topic.config.partitions {
            let id = TopicPartition::new(name.clone(), number);
            if let Some(failure) = self.shared.failure(&id.to_string()) {
                return Err(Problem::new(Reason::Code(ErrorCode::Unavailable), failure));
            }
            let partition = self.log.partition(&id).map_err(|error| failed(error.into()))?;
            ends.push(((topic.id, PartitionId(number)), partition.offsets().stable));
        }
        self.shared.reached(&ends).await;
        Ok(())
    }

    fn answer(&self, asked: &Asked, mut memory: AnswerMemory, deadline: Deadline) -> Result<Answered, Problem> {
        let Asked { selection, window, form, page, shape } = asked;
        let snapshot = self.shared.snapshot();
        let reader =
            Reader { snapshot: &snapshot, cache: &self.cache, shared: &self.shared, limits: self.limits, deadline };
        let (mut entities, total) = reader.entities(selection, window, *page)?;
        if shape.is_single {
            if entities.is_empty() {
                // It may have a history at other times.
                entities.extend(reader.at_any_time(selection)?);
            }
            let id = selection.ids.first().map(String::as_str).unwrap_or_default();
            match entities.len() {
                0 => return Err(no_history(id)),
                1 => {}
                _ => return Err(several(id)),
            }
        }
        let found = reader.read(&entities, (selection, window, form), &mut memory)?;
        let text = render(&entities, &found, shape, &mut memory)?;
        let cut = if let Found::Points(points) = &found { points.cut } else { None };
        Ok(Answered { text, media: shape.media, total: page.counts.then_some(total), cut, memory })
    }

    /// Deletes; done for everything that was answered before when it returns.
    pub(crate) async fn erase(&self, tenant: &TenantId, erasure: Erasure) -> Result<(), Problem> {
        self.caught_up(tenant).await?;
        let not_carried_out = self.shared.files().erasures.len();
        if not_carried_out >= ERASURES_MAX {
            return Err(Problem::new(Reason::Code(ErrorCode::Overloaded), "as many deletions are carried out as may")
                .value(not_carried_out)
                .rule("files are rewritten one after the other")
                .remedy("ask again later; delete whole types or entities instead of many attributes"));
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.shared.erasures.lock();
            if waiting.len() >= self.requests_max_waiting {
                return Err(self.full(waiting.len()));
            }
            if self.shared.is_stopping() {
                return Err(failed(Error::Stopped));
            }
            waiting.push(ErasureAsked { erasure, answer });
        }
        self.shared.keeper_bell.ring();
        answered.await.map_err(|_| failed(Error::Stopped))?.map_err(failed)
    }

    fn full(&self, waiting: usize) -> Problem {
        Problem::new(Reason::Code(ErrorCode::Overloaded), "as many requests wait for history as may")
            .value(waiting)
            .rule(format!("history.requests_max_waiting = {}", self.requests_max_waiting))
            .remedy("ask again later")
            .retry_after(Duration::from_secs(1))
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
