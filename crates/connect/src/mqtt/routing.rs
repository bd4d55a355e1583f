//! The route of a message of the private space to telemetry or events, and its records there.

use std::borrow::Cow;

use millstream_http::Problem;
use millstream_log::{AckLevel, Appended, Reply};
use millstream_mqtt::Qos;
use millstream_types::{Principal, Record};
use millstream_view::Publish;

use super::incoming::IncomingPublish;
use super::publish::{PublishContext, split};
use super::session_store::{self, Upstream};
use super::topic::PropertyBag;
use crate::ingest::AdmittedRun;
use crate::refusal::larger_than_set;
use crate::registry::{OnUnknown, PrivateRoute, TenantState};
use crate::sender::DeviceAddress;
use crate::stream::{Delivery, Stream};

/// Messages of the broker that count like messages on Hono's topics.
#[derive(Debug)]
pub(super) struct RoutedBatch {
    pub(super) delivery: Delivery,
    pub(super) payload_bytes: Vec<usize>,
}

/// The append to telemetry or events that accompanies one to the broker.
pub(super) enum StreamAppend {
    /// No append to telemetry or events.
    No,
    /// An append that nobody waits for.
    Unawaited,
    /// An append whose answer is awaited.
    Awaited(Reply<Appended>, Box<RoutedBatch>),
}

impl RoutedBatch {
    pub(super) fn of(run: &[IncomingPublish<'_>], delivery: Delivery) -> Self {
        Self { delivery, payload_bytes: run.iter().map(|item| item.publish.payload.len()).collect() }
    }

    /// The messages that the tenant's owner says it has taken now.
    pub(super) fn of_those_taken(&self, fates: &[session_store::PublishOutcome]) -> Self {
        let taken =
            self.payload_bytes.iter().zip(fates).filter(|(_, fate)| **fate == session_store::PublishOutcome::Taken);
        Self { delivery: self.delivery, payload_bytes: taken.map(|(bytes, _)| *bytes).collect() }
    }
}

/// The receivers of a message of the private space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receivers<'a> {
    /// Those who have subscribed to its topic.
    Subscribers,
    /// Subscribers only, by `"unknown": "publish"`: its rule names this device, which is not registered.
    OfUnknown(&'a str),
    /// The subscribers, and telemetry or events.
    Stream(PrivateRoute<'a>),
}

impl<'a> Receivers<'a> {
    pub(super) fn of(known: &TenantState, item: &'a IncomingPublish<'_>) -> Self {
        let Some(route) = rule_of(known, item) else { return Self::Subscribers };
        match route.device {
            Some(device) if route.on_unknown == OnUnknown::Publish && !known.devices.contains_key(device) => {
                Self::OfUnknown(device)
            }
            _ => Self::Stream(route),
        }
    }
}

/// The route to telemetry or events that the first rule for its topic gives a message.
pub(super) fn rule_of<'a>(known: &TenantState, item: &'a IncomingPublish<'_>) -> Option<PrivateRoute<'a>> {
    let mapping = known.mapping.as_deref().filter(|_| !says_nothing(item))?;
    mapping.route(item.topic.as_str())
}

/// The device that a rule names.
pub(super) fn target_of(route: PrivateRoute<'_>) -> DeviceAddress<'_> {
    route.device.map_or(DeviceAddress::Caller, |device| DeviceAddress::Named { tenant: None, device })
}

/// True if a message only clears what its topic retains: it goes nowhere else.
pub(super) fn says_nothing(item: &IncomingPublish<'_>) -> bool {
    item.publish.payload.is_empty() && item.stated_content_type().is_none()
}

/// The context of a message that a rule takes. An event that is published at most once is not waited for.
pub(super) fn publish_context<'a>(
    who: &'a Principal,
    route: PrivateRoute<'a>,
    item: &'a IncomingPublish<'_>,
    bag: &'a PropertyBag<'a>,
) -> PublishContext<'a> {
    let delivery = match (route.stream, item.publish.qos) {
        (Stream::Event, _) => Delivery::Event,
        (_, Qos::AtMostOnce) => Delivery::AtMostOnce,
        (_, Qos::AtLeastOnce | Qos::ExactlyOnce) => Delivery::AtLeastOnce,
    };
    let mut context = PublishContext::new(who, delivery, target_of(route), item.topic.as_str(), bag);
    if item.publish.qos == Qos::AtMostOnce {
        context.level = AckLevel::Memory;
    }
    context
}

/// Refuses what would be no telemetry or event on Hono's topics.
pub(super) fn check<'a>(
    run: &[IncomingPublish<'a>],
    context: &PublishContext<'a>,
    payload_max_bytes: usize,
) -> Result<(), Problem> {
    let mut sizes = run.iter().map(IncomingPublish::size_bytes);
    if let Some(large) = sizes.find(|size| *size > payload_max_bytes) {
        return Err(larger_than_set(large, "connect.mqtt.payload_max_bytes", payload_max_bytes));
    }
    split(run, context).map_or(Ok(()), |(_, problem)| Err(problem))
}

/// Records, as the tenant's owner appends them.
pub(super) fn to_own(admitted: &AdmittedRun<'_>) -> Vec<Upstream> {
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
    admitted.records.iter().map(|record| (admitted.partition.id().clone(), owned(record))).collect()
}
