//! How queries go on that a former process has kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_log::{Error as LogError, Topic, TopicConfig};
use millstream_types::{Epoch, Offset, Position, TopicId, TopicName};

use crate::engine::{Begun, filter};
use crate::keeper::Resumed;
use crate::keeping::{Addressee, Keeping, Places};
use crate::kept::Kept;
use crate::live::Live;
use crate::stream::Stream;
use crate::subscription::Subscription;
use crate::{Cause, Config, Deliver, Engine, Error, Trouble};

impl Engine {
    /// Has the threads take up what was kept. A query that cannot go on ends with the reason; its client may come for it.
    pub(crate) fn resume(&self, kept: Vec<Kept>, epoch: Epoch) -> Resumed {
        let mut by_stream: HashMap<TopicId, Vec<Arc<Live>>> = HashMap::new();
        for kept in kept {
            let id = kept.id;
            match self.take_up(kept, epoch) {
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

    /// Those of a former process whose results go into topics, each with for whom and into which; each once.
    pub(crate) fn addressed(&self) -> Vec<(Subscription, Addressee, String)> {
        let addressed = |live: Arc<Live>| {
            let keeping = live.keeping.as_ref()?;
            let (addressee, Deliver::Topic(topic)) = (keeping.addressee.clone()?, keeping.request.deliver.clone())
            else {
                return None;
            };
            let client = keeping.attach()?;
            Some((Subscription::new(live.clone(), self.registry.clone(), client), addressee, topic))
        };
        self.registry.kept().into_iter().filter_map(addressed).collect()
    }

    /// Makes a query live that was kept, or one that has ended of which nobody knows.
    fn take_up(&self, kept: Kept, epoch: Epoch) -> Result<Arc<Live>, Error> {
        let tenant = kept.tenant()?;
        let plan = self.plan(&kept.request)?;
        let name = self.stream_name(&tenant, &plan.source)?;
        let mut trouble = None;
        let stream = match self.stream(name.clone()) {
            Ok(stream) if kept.is_of(stream.topic.id) => stream,
            Ok(_) => gone(&name, "has been deleted and created anew", &mut trouble),
            Err(_) => gone(&name, "has been deleted", &mut trouble),
        };
        let now_ms = self.clocks.wall.now_ms();
        // Nothing past its deadline is owed, however long nobody ran it.
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
            live.outbox.number(kept.trail.as_ref(), epoch);
        }
        live.keeping = Some(Box::new(Keeping::resume(kept.request.clone(), addressee, ran_before)));
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

    /// Where it goes on in each partition, as far as the records are still there that it has seen and is to see.
    fn places(&self, kept: &Kept, stream: &Stream, trouble: &mut Option<Trouble>) -> Places {
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

/// The stream of a query whose own is there no longer: it has no records.
fn gone(name: &TopicName, what: &str, trouble: &mut Option<Trouble>) -> Arc<Stream> {
    *trouble = Some(no_way_on(format!("topic '{name}' {what} since the query was kept")));
    let topic = Topic { id: TopicId(0), name: name.clone(), config: TopicConfig::default() };
    Arc::new(Stream::new(Arc::new(topic), Vec::new()))
}

fn no_way_on(error: String) -> Trouble {
    Trouble { error, resolution: "use what it gives up to there, and ask again".to_owned() }
}

/// What has been admitted once stays so.
fn unlimited(config: &Config) -> Config {
    Config {
        live_max: usize::MAX,
        live_per_tenant_max: usize::MAX,
        kept_per_tenant_max: usize::MAX,
        residual_ns_per_record_max: u64::MAX,
        ..config.clone()
    }
}
