//! Resumes the kept queries of a former process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_log::{Error as LogError, Topic, TopicConfig};
use millstream_types::{Offset, Position, ShortLives, TenantId, TopicId, TopicName};

use crate::checkpoint::Checkpoint;
use crate::checkpointer::Resumed;
use crate::durable_state::{DurableState, PartitionPositions, ResultRecipient};
use crate::engine::of_stream;
use crate::engine::{Begun, filter};
use crate::live::{LiveQuery, LiveStream};
use crate::subscription::Subscription;
use crate::{Cause, Config, Deliver, Engine, Error, Meta, Trouble};

impl Engine {
    /// Makes stored queries live again. A query that cannot continue ends with the reason, which its client can read; so does
    /// one that ran in each of too many `short_lives`.
    pub(crate) fn resume(&self, kept: Vec<Checkpoint>, short_lives: &ShortLives) -> Resumed {
        let mut by_stream: HashMap<TopicId, Vec<Arc<LiveQuery>>> = HashMap::new();
        for kept in kept {
            let id = kept.id;
            let may_have_crashed = self.may_have_crashed(short_lives.since(kept.received_ms));
            match self.take_up(kept, may_have_crashed) {
                Ok(live) if live.outbox.has_ended() => {}
                Ok(live) => by_stream.entry(live.stream.topic.id).or_default().push(live),
                Err(error) => {
                    tracing::error!(query = %id, error = &error as &dyn std::error::Error, "a query that was kept cannot go on");
                }
            }
        }
        let mut resumed = Resumed::default();
        for queries in by_stream.into_values() {
            resumed.read.extend(self.registry.resume(&queries.as_slice().into()));
            resumed.queries.extend(queries);
        }
        resumed
    }

    /// The kept queries that live, and that credentials of this name have asked; of all tenants if `tenant` is `None`.
    pub fn kept_by(&self, tenant: Option<&TenantId>, submitter: &str) -> Vec<(TenantId, Meta)> {
        let is_theirs = |live: &Arc<LiveQuery>| {
            let submitted_by = live.durable.as_ref().and_then(|durable| durable.request.submitted_by.as_deref());
            let is_within = tenant.is_none_or(|tenant| tenant == live.tenant());
            is_within && submitted_by == Some(submitter) && !live.outbox.has_ended()
        };
        let mut theirs: Vec<Arc<LiveQuery>> = self.registry.kept().into_iter().filter(is_theirs).collect();
        theirs.sort_by_key(|live| (live.received, live.id));
        theirs.iter().map(|live| (live.tenant().clone(), live.meta())).collect()
    }

    /// The resumed queries with results into topics, each once, with its recipient and its topic.
    pub(crate) fn addressed(&self) -> Vec<(Subscription, ResultRecipient, String)> {
        let addressed = |live: Arc<LiveQuery>| {
            let durable = live.durable.as_ref()?;
            let (addressee, Deliver::Topic(topic)) = (durable.addressee.clone()?, durable.request.deliver.clone())
            else {
                return None;
            };
            let client = durable.attach()?;
            Some((Subscription::new(live.clone(), self.registry.clone(), client), addressee, topic))
        };
        self.registry.kept().into_iter().filter_map(addressed).collect()
    }

    /// Makes a stored query live again, or ends it if its end was not stored.
    fn take_up(&self, mut kept: Checkpoint, mut trouble: Option<Trouble>) -> Result<Arc<LiveQuery>, Error> {
        kept.request.submitted_by = kept.submitted_by.take();
        let tenant = kept.tenant()?;
        let plan = self.plan(&kept.request)?;
        let name = self.stream_name(&tenant, &plan.source)?;
        let plan = of_stream(plan, &kept.request, &name);
        let stream = match self.stream(name.clone()) {
            Ok(stream) if kept.is_of(stream.topic.id) => stream,
            Ok(_) => gone(&name, "has been deleted and created anew", &mut trouble),
            Err(Error::UnknownStream { .. }) => gone(&name, "has been deleted", &mut trouble),
            // It stays stored, and goes on with the next start.
            Err(error) => return Err(error),
        };
        let now_ms = self.clocks.wall.now_ms();
        // No window after its deadline is due, however long the query was not running.
        let at_ms = kept.deadline_ms.map_or(now_ms, |deadline_ms| deadline_ms.min(now_ms));
        let (received, ran_before) = (self.clocks.monotonic.now(), kept.ran_for(at_ms));
        let addressee = kept.addressed.as_ref().map(|addressed| addressed.to.clone());
        let begun =
            Begun { id: kept.id, addressee: addressee.clone(), received, received_ms: kept.received_ms, ran_before };
        let mut live = self.live(stream, kept.request.clone(), &plan, begun)?;
        live.deadline = kept.deadline_ms.map(|deadline_ms| {
            received.saturating_add(Duration::from_millis(deadline_ms.saturating_sub(at_ms).unsigned_abs())).into()
        });
        let places = self.places(&kept, &live.stream, &mut trouble);
        if kept.end.is_none()
            && let Some((running, states)) = live.running.as_ref().zip(kept.states.as_ref())
            && let Err(error) = running.resume(states)
        {
            trouble = Some(no_way_on(format!("what the query had come to cannot be read: {error}")));
        }
        live.outbox.resume(kept.counts, kept.waiting(), kept.end.clone());
        if let Some(addressed) = &kept.addressed {
            live.outbox.hold_until_arrived(addressed.gone);
        } else {
            live.outbox.number(kept.resume_buffer.as_ref(), self.life);
        }
        live.durable = Some(Box::new(DurableState::resume(kept.request.clone(), addressee, ran_before)));
        live.begin_at(&places);
        live.price = live.price.filter(|_| kept.end.is_none());
        live.matched.store(true, Ordering::Release);
        let live = Arc::new(live);
        self.registry.admit(&live, &filter(&plan), &unlimited(&self.config))?;
        if kept.end.is_none() && trouble.is_some() {
            self.registry.end(&live, Cause::Error, trouble);
        }
        Ok(live)
    }

    /// The reason why a query that ran in this many short lives does not go on; `None` if it does.
    fn may_have_crashed(&self, lives: usize) -> Option<Trouble> {
        let max = self.config.crashes_max;
        (max > 0 && lives >= max).then(|| Trouble {
            error: format!(
                "the server went down {lives} times in a row while this query ran, each time within a minute of its start \
                 (query.crashes_max = {max})"
            ),
            resolution: "use what it gives up to there, and ask again once the cause is mended".to_owned(),
        })
    }

    /// The position of the query in each partition, adjusted to the records that still exist.
    fn places(&self, kept: &Checkpoint, stream: &LiveStream, trouble: &mut Option<Trouble>) -> PartitionPositions {
        let mut places = kept.places();
        if kept.end.is_some() {
            return places;
        }
        for partition in &stream.partitions {
            let Some(reached) = places.get_mut(&partition.id().partition) else { continue };
            let offset = Offset(reached.counted.next);
            let position = Position { topic: stream.topic.id, epoch: reached.epoch, offset };
            match partition.resume(position) {
                Ok(_) => {}
                // Of a query that has seen nothing there, nothing is lost.
                Err(LogError::PositionLost { restart, .. }) if !reached.has_begun() => {
                    (reached.first, reached.counted.next) = (restart.0, restart.0);
                }
                Err(error) => *trouble = Some(no_way_on(error.to_string())),
            }
        }
        places
    }
}

/// A stream without partitions, for a query whose stream no longer exists.
fn gone(name: &TopicName, what: &str, trouble: &mut Option<Trouble>) -> Arc<LiveStream> {
    *trouble = Some(no_way_on(format!("topic '{name}' {what} since the query was kept")));
    let topic = Topic { id: TopicId(0), name: name.clone(), config: TopicConfig::default() };
    Arc::new(LiveStream::new(Arc::new(topic), Vec::new()))
}

fn no_way_on(error: String) -> Trouble {
    Trouble { error, resolution: "use what it gives up to there, and ask again".to_owned() }
}

/// A configuration without admission limits: a query that was admitted once stays so.
fn unlimited(config: &Config) -> Config {
    Config {
        live_max: usize::MAX,
        live_per_tenant_max: usize::MAX,
        kept_per_tenant_max: usize::MAX,
        residual_ns_per_record_max: u64::MAX,
        ..config.clone()
    }
}
