//! Messages of the private space that a rule of their tenant sends to telemetry or events as well.
//!
//! Such a message is one of its device like those on Hono's topics: by the same code it is judged who may send it and how
//! much, and its record is made. What is refused there does not enter the private space either. It is acknowledged when both
//! have it. Where something is kept of it in the same step (it is retained, or sent exactly once into a session that is kept),
//! the tenant's owner appends it to both together: both or none, and not again when it comes again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, Appended, Partition, Reply};
use millstream_types::{Principal, Record};
use millstream_view::Publish;

use super::client::Client;
use super::fault::Fault;
use super::kept::{self, Upstream};
use super::packet::Qos;
use super::topic::Bag;
use super::upstream::{Item, fate_of};
use super::way::{Way, split};
use crate::meter::{Delivery, Fate};
use crate::refusal::larger_than_set;
use crate::registry::{Mapping, Route, TenantState};
use crate::sender::Target;
use crate::streams::Stream;

/// What of messages of the private space is counted like messages on Hono's topics.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) delivery: Delivery,
    pub(super) payload_bytes: Vec<usize>,
}

/// Where messages are that are to be appended to the private space.
pub(super) enum Elsewhere {
    /// Nowhere else.
    No,
    /// In telemetry or events, which nobody waits for.
    Unawaited,
    /// On their way there.
    Awaited(Reply<Appended>, Box<Mapped>),
}

/// Who has the records of telemetry or events.
enum Handed {
    /// The log; what answers, if it is waited for.
    ToLog(Option<Reply<Appended>>),
    /// Nobody yet.
    ToOwner(Vec<Upstream>),
}

impl Mapped {
    fn of(run: &[Item<'_>], delivery: Delivery) -> Self {
        Self { delivery, payload_bytes: run.iter().map(|item| item.publish.payload.len()).collect() }
    }

    /// Those of which the tenant's owner says that it has taken them now.
    pub(super) fn of_those_taken(&self, fates: &[kept::Fate]) -> Self {
        let taken = self.payload_bytes.iter().zip(fates).filter(|(_, fate)| **fate == kept::Fate::Taken);
        Self { delivery: self.delivery, payload_bytes: taken.map(|(bytes, _)| *bytes).collect() }
    }
}

impl Client {
    /// Publishes messages that are promised alike, each as the tenant's rules want it.
    pub(super) fn offer_by_rules(
        &mut self,
        run: &[Item<'_>],
        known: &TenantState,
        mapping: &Mapping,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let mut rest = run;
        while let Some(first) = rest.first() {
            let route = route_of(mapping, first);
            let is_same = |item: &&Item<'_>| {
                item.topic.as_str() == first.topic.as_str() && says_nothing(item) == says_nothing(first)
            };
            // Records of one append have their topic in common.
            let is_alike = |item: &&Item<'_>| is_same(item) || (route.is_none() && route_of(mapping, item).is_none());
            let (alike, others) = rest.split_at(rest.iter().take_while(is_alike).count());
            match route {
                Some(route) => self.offer_mapped(alike, route, out)?,
                None => self.offer_unmapped(alike, Some(known), out)?,
            }
            rest = others;
        }
        Ok(())
    }

    /// Publishes messages of one topic, and appends them to telemetry or events.
    fn offer_mapped(&mut self, run: &[Item<'_>], route: Route<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(first) = run.first() else { return Ok(()) };
        let (who, bag) = (Arc::clone(&self.who), Bag::default());
        let way = way(&who, route, first, &bag);
        match self.hand_over(run, &way) {
            Ok(handed) => self.publish_mapped(run, way.delivery, handed),
            // What fits is taken, to the last message.
            Err(problem) if run.len() > 1 && problem.status().is_client_error() => {
                run.chunks(1).try_for_each(|one| self.offer_mapped(one, route, out))
            }
            Err(problem) => {
                self.count_mapped(&Mapped::of(run, way.delivery), fate_of(&problem), Duration::ZERO);
                run.iter().try_for_each(|item| self.refuse_private(item, &problem, out))
            }
        }
    }

    /// Hands messages to telemetry or events, or has them ready for the tenant's owner.
    fn hand_over(&mut self, run: &[Item<'_>], way: &Way<'_>) -> Result<Handed, Problem> {
        check(run, way, self.adapter.config.payload_max_bytes)?;
        if self.needs_owner(run) {
            let upstream = self.offer_with(run, way, |partition, records| Ok(to_own(partition, records)))?;
            return Ok(Handed::ToOwner(upstream));
        }
        self.offer_with(run, way, |partition, records| way.append(partition, records)).map(Handed::ToLog)
    }

    /// Publishes in the private space what telemetry or events have got.
    fn publish_mapped(&mut self, run: &[Item<'_>], delivery: Delivery, handed: Handed) -> Result<(), Fault> {
        let mapped = Mapped::of(run, delivery);
        let elsewhere = match handed {
            Handed::ToOwner(upstream) => {
                self.publish_owned(run, upstream, Some(Box::new(mapped)));
                return Ok(());
            }
            Handed::ToLog(Some(answer)) => Elsewhere::Awaited(answer, Box::new(mapped)),
            Handed::ToLog(None) => {
                self.count_mapped(&mapped, Fate::Forwarded, Duration::ZERO);
                Elsewhere::Unawaited
            }
        };
        self.append_here(run, elsewhere).map(drop)
    }

    /// Counts messages like those on Hono's topics.
    pub(super) fn count_mapped(&self, mapped: &Mapped, fate: Fate, took: Duration) {
        mapped.payload_bytes.iter().for_each(|bytes| self.meter.count(mapped.delivery, fate, *bytes, took));
    }
}

/// Where a message goes beside the private space.
pub(super) fn route_of<'a>(mapping: &Mapping, item: &'a Item<'_>) -> Option<Route<'a>> {
    if says_nothing(item) { None } else { mapping.route(item.topic.as_str()) }
}

/// Whether a message only clears what its topic retains: it goes nowhere else.
fn says_nothing(item: &Item<'_>) -> bool {
    item.publish.payload.is_empty() && item.content_type().is_none()
}

/// How a message is sent that a rule takes. An event that is published at most once is not waited for.
pub(super) fn way<'a>(who: &'a Principal, route: Route<'a>, item: &'a Item<'_>, bag: &'a Bag<'a>) -> Way<'a> {
    let delivery = match (route.stream, item.publish.qos) {
        (Stream::Event, _) => Delivery::Event,
        (_, Qos::AtMostOnce) => Delivery::AtMostOnce,
        (_, Qos::AtLeastOnce | Qos::ExactlyOnce) => Delivery::AtLeastOnce,
    };
    let target = route.device.map_or(Target::Caller, |device| Target::Named { tenant: None, device });
    let mut way = Way::new(who, delivery, target, item.topic.as_str(), bag);
    if item.publish.qos == Qos::AtMostOnce {
        way.level = AckLevel::Memory;
    }
    way
}

/// Refuses what would be no telemetry or event on Hono's topics.
pub(super) fn check<'a>(run: &[Item<'a>], way: &Way<'a>, payload_max_bytes: usize) -> Result<(), Problem> {
    let mut sizes = run.iter().map(|item| item.publish.payload.len());
    if let Some(large) = sizes.find(|size| *size > payload_max_bytes) {
        return Err(larger_than_set(large, "connect.mqtt.payload_max_bytes", payload_max_bytes));
    }
    split(run, way).map_or(Ok(()), |(_, problem)| Err(problem))
}

/// Records, as the tenant's owner appends them.
pub(super) fn to_own(partition: &Arc<dyn Partition>, records: &[Record<'_>]) -> Vec<Upstream> {
    let owned = |record: &Record<'_>| Publish {
        timestamp_ms: record.timestamp_ms,
        key: record.key.map(Into::into),
        value: record.value.map(Into::into),
        headers: record
            .headers
            .iter()
            .map(|header| (Cow::Owned(header.key.to_owned()), header.value.unwrap_or_default().to_vec()))
            .collect(),
    };
    records.iter().map(|record| (partition.id().clone(), owned(record))).collect()
}
