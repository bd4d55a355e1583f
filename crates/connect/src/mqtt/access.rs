//! Access to topics of the private space, by the tenant's `ext` and the device's.

use super::client::Client;
use super::disconnect::DisconnectCause;
use crate::registry::{Act, has_broker, is_declared, may};
use crate::topic_filter::{TopicFilter, why_not_published};
use millstream_mqtt::reason;

/// Why there is no private space.
const OFF: &str = "the tenant has no private space (its ext has mqtt-broker off); publish to telemetry, t, event or e";

const UNDECLARED: &str = "the tenant's mqtt-private-topics do not cover it; publish to telemetry, t, event or e, or add a filter \
                          that covers it to ext.mqtt-private-topics of the tenant";

impl Client {
    /// True if the device may do so with all topics of `pattern`.
    pub(super) fn allows(&self, act: Act, pattern: &str) -> bool {
        let device = self.adapter.registry.device(self.uplink.tenant(), &self.uplink.who().name);
        device.is_some_and(|device| may(&device.ext, act, pattern))
    }

    /// True if the device may still have every subscription that it has.
    pub(super) fn keeps_its_filters(&self) -> bool {
        let Some(broker_client) = &self.broker_client else { return true };
        let snapshot = self.adapter.registry.snapshot(self.uplink.tenant());
        let tenant = snapshot.state.tenant(self.uplink.tenant()).and_then(|known| known.tenant.as_deref());
        let filters = broker_client.link.with(|session| session.filters.keys().cloned().collect::<Vec<_>>());
        let is_allowed =
            |text: &str| TopicFilter::parse(text).is_some_and(|filter| self.allows(Act::Subscribe, filter.pattern));
        // A connection that has lost its session ends by that.
        tenant.is_some_and(|stored| has_broker(&stored.value.ext))
            && filters.is_ok_and(|filters| filters.iter().all(|filter| is_allowed(filter)))
    }

    /// Checks that the device may publish to `topic` in the private space.
    pub(super) fn may_publish(&self, topic: &str) -> Result<(), DisconnectCause> {
        self.check_topic(topic)?;
        if let Some(why) = self.why_undeclared(topic) {
            return Err(DisconnectCause::refused(reason::BAD_TOPIC, why));
        }
        if self.allows(Act::Publish, topic) { Ok(()) } else { Err(forbidden(topic)) }
    }

    /// Checks that there is a private space and that `topic` is one to publish to.
    pub(super) fn check_topic(&self, topic: &str) -> Result<(), DisconnectCause> {
        if self.broker_client.is_none() {
            return Err(DisconnectCause::refused(reason::NOT_AUTHORISED, format!("topic '{topic}': {OFF}")));
        }
        if let Some(rule) = why_not_published(topic) {
            return Err(DisconnectCause::refused(reason::BAD_TOPIC, format!("topic '{topic}': {rule}")));
        }
        Ok(())
    }

    /// Why a topic is none of those that the tenant has declared; `None` if it is, or if all are.
    pub(super) fn why_undeclared(&self, topic: &str) -> Option<String> {
        let snapshot = self.adapter.registry.snapshot(self.uplink.tenant());
        let tenant = snapshot.state.tenant(self.uplink.tenant()).and_then(|known| known.tenant.as_deref())?;
        (!is_declared(&tenant.value.ext, topic)).then(|| format!("topic '{topic}': {UNDECLARED}"))
    }
}

pub(super) fn forbidden(topic: &str) -> DisconnectCause {
    let why = format!("topic '{topic}': the device's mqtt-access does not allow to publish there");
    DisconnectCause::refused(reason::NOT_AUTHORISED, why)
}
