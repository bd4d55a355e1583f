//! Messages of the private space that a rule of their tenant sends to telemetry or events as well.
//!
//! Such a message is one of its device like those on Hono's topics: by the same code it is judged who may send it and how
//! much, and its record is made. What is refused there does not enter the private space either. It is acknowledged when both
//! have it. A rule may want messages of unknown devices published and nothing else. Where something is kept of a message in
//! the same step (it is retained, or sent exactly once into a session that is kept), the tenant's owner appends it to both
//! together: both or none, and not again when it comes again.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{Appended, Reply};

use super::client::Client;
use super::disconnect::DisconnectCause;
use super::incoming::IncomingPublish;
use super::publish::PublishContext;
use super::routing::{Receivers, RoutedBatch, StreamAppend, check, publish_context, says_nothing, to_own};
use super::session_store::Upstream;
use super::topic::PropertyBag;
use crate::ingest::{fits_apart, outcome_of};
use crate::metrics::ProcessingOutcome;
use crate::registry::{PrivateRoute, TenantState};
use crate::stream::Delivery;

/// The state of the records for telemetry or events.
enum HandOver {
    /// Records that the log has, and its pending answer if that is waited for.
    ToLog(Option<Reply<Appended>>),
    /// Records that the tenant's owner appends.
    ToOwner(Vec<Upstream>),
}

impl Client {
    /// Publishes messages that are promised alike, each as the tenant's rules want it.
    pub(super) fn offer_by_rules(
        &mut self,
        run: &[IncomingPublish<'_>],
        known: &TenantState,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let mut rest = run;
        while let Some(first) = rest.first() {
            let receivers = Receivers::of(known, first);
            let is_same = |item: &&IncomingPublish<'_>| {
                item.topic.as_str() == first.topic.as_str() && says_nothing(item) == says_nothing(first)
            };
            // Records of one append have their topic in common.
            let is_unmapped = receivers == Receivers::Subscribers;
            let is_alike = |item: &&IncomingPublish<'_>| {
                is_same(item) || (is_unmapped && Receivers::of(known, item) == Receivers::Subscribers)
            };
            let (alike, others) = rest.split_at(rest.iter().take_while(is_alike).count());
            match receivers {
                Receivers::Stream(route) => self.offer_routed(alike, route, out)?,
                Receivers::Subscribers => self.offer_unrouted(alike, out)?,
                Receivers::OfUnknown(device) => {
                    if let Some(broker_client) = &self.broker_client {
                        broker_client.link.broker.unknown_devices.tell(self.uplink.who(), first.topic.as_str(), device);
                    }
                    self.offer_unrouted(alike, out)?;
                }
            }
            rest = others;
        }
        Ok(())
    }

    /// Publishes messages of one topic, and appends them to telemetry or events.
    fn offer_routed(
        &mut self,
        run: &[IncomingPublish<'_>],
        route: PrivateRoute<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let Some(first) = run.first() else { return Ok(()) };
        let (who, bag) = (Arc::clone(self.uplink.who()), PropertyBag::default());
        let context = publish_context(&who, route, first, &bag);
        match self.hand_over(run, &context) {
            Ok(handed) => self.publish_routed(run, context.delivery, handed),
            // Each message is offered by itself, so that those that fit are taken.
            Err(problem) if fits_apart(run, &problem) => {
                run.chunks(1).try_for_each(|one| self.offer_routed(one, route, out))
            }
            Err(problem) => {
                self.count_routed(&RoutedBatch::of(run, context.delivery), outcome_of(&problem), Duration::ZERO);
                run.iter().try_for_each(|item| self.refuse_broker_publish(item, &problem, out))
            }
        }
    }

    /// Hands messages to telemetry or events, or has them ready for the tenant's owner.
    fn hand_over(&mut self, run: &[IncomingPublish<'_>], context: &PublishContext<'_>) -> Result<HandOver, Problem> {
        check(run, context, self.adapter.config.payload_max_bytes)?;
        if self.needs_owner(run) {
            let upstream = self.offer_with(run, context, |admitted| Ok(to_own(admitted)))?;
            return Ok(HandOver::ToOwner(upstream));
        }
        self.offer_with(run, context, |admitted| admitted.append(context.level)).map(HandOver::ToLog)
    }

    /// Publishes in the private space what telemetry or events have got.
    fn publish_routed(
        &mut self,
        run: &[IncomingPublish<'_>],
        delivery: Delivery,
        handed: HandOver,
    ) -> Result<(), DisconnectCause> {
        let routed = RoutedBatch::of(run, delivery);
        let elsewhere = match handed {
            HandOver::ToOwner(upstream) => {
                self.publish_owned(run, upstream, Some(Box::new(routed)));
                return Ok(());
            }
            HandOver::ToLog(Some(answer)) => StreamAppend::Awaited(answer, Box::new(routed)),
            HandOver::ToLog(None) => {
                self.count_routed(&routed, ProcessingOutcome::Forwarded, Duration::ZERO);
                StreamAppend::Unawaited
            }
        };
        self.append_here(run, elsewhere).map(drop)
    }

    /// Counts messages like those on Hono's topics.
    pub(super) fn count_routed(&self, routed: &RoutedBatch, fate: ProcessingOutcome, took: Duration) {
        routed.payload_bytes.iter().for_each(|bytes| self.uplink.meter().count(routed.delivery, fate, *bytes, took));
    }
}
