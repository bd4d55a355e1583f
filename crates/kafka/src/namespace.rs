//! The topics that a client sees, their names for it, and the groups and transactional ids that it may use.
//!
//! The log has one name for each topic (`telemetry.acme`). `kafka.device_topic_prefix` gives the topics of devices
//! another name for Kafka clients only (`hono.telemetry.acme`). Nothing in the log is renamed, so the positions of
//! groups stay valid when the setting changes.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use millstream_types::{AccessScope, NameError, TENANT_MAX_CHARS, TenantId, TopicKind, TopicName};

use crate::api_error::ApiError;

/// The kinds of topics whose names are prefixed.
const DEVICE_KINDS: [TopicKind; 4] =
    [TopicKind::Telemetry, TopicKind::Event, TopicKind::Command, TopicKind::CommandResponse];

#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    /// The tenant whose topics and groups the client sees.
    pub(crate) tenant: TenantId,
    /// The client also sees topics of other tenants whose names say their tenant.
    pub(crate) in_every_tenant: bool,
    /// The topics of these tenants that the client may use.
    scope: AccessScope,
    /// The prefix of the names of devices' topics; usually empty.
    device_prefix: Arc<str>,
}

impl Namespace {
    /// The topics of the tenant `default`, for connections without a login.
    pub(crate) fn new(device_prefix: &str) -> Self {
        Self {
            tenant: TenantId::default(),
            in_every_tenant: false,
            scope: AccessScope::default(),
            device_prefix: device_prefix.into(),
        }
    }

    /// The same names, as clients of `tenant` see them.
    pub(crate) fn of(&self, tenant: &TenantId, in_every_tenant: bool) -> Self {
        Self { tenant: tenant.clone(), in_every_tenant, ..self.clone() }
    }

    /// The same names, for clients that may use a part of the topics.
    pub(crate) fn limited_to(self, scope: &AccessScope) -> Self {
        Self { scope: scope.clone(), ..self }
    }

    /// Finds the topic that the client means by `name`. It need not exist, and the client need not see it.
    pub(crate) fn parse(&self, name: &str) -> Result<TopicName, ApiError> {
        if let Some(topic) = self.prefixed(name) {
            return Ok(topic);
        }
        let invalid = |why: String| ApiError::new(ResponseError::InvalidTopicException, why);
        let topic = TopicName::parse(name, &self.tenant).map_err(|error| invalid(error.to_string()))?;
        if !self.device_prefix.is_empty() && DEVICE_KINDS.contains(&topic.kind()) {
            let (prefix, called) = (&self.device_prefix, self.render(&topic));
            return Err(invalid(format!(
                "topic '{name}' is called '{called}' here, as kafka.device_topic_prefix = {prefix}; use that name"
            )));
        }
        Ok(topic)
    }

    /// The name of `topic` for the client.
    pub(crate) fn render(&self, topic: &TopicName) -> String {
        match DEVICE_KINDS.contains(&topic.kind()) {
            true => format!("{}{topic}", self.device_prefix),
            false => topic.to_string(),
        }
    }

    /// True if the client may see `topic`. It sees the topics of its tenant. If it may act in all tenants, it also sees topics
    /// whose names say their tenant. A user topic of another tenant stays hidden, because its name could be one of its own. A
    /// user topic whose name is that of a device topic with its prefix stays hidden behind that one.
    pub(crate) fn sees(&self, topic: &TopicName) -> bool {
        match topic.kind() {
            TopicKind::Internal => false,
            TopicKind::User => *topic.tenant() == self.tenant && self.prefixed(topic.name()).is_none(),
            _ => self.in_every_tenant || *topic.tenant() == self.tenant,
        }
    }

    /// True if the client may use `topic`, once it sees it.
    pub(crate) fn admits(&self, topic: &TopicName) -> bool {
        !self.scope.is_limited() || self.scope.has_topic(&topic.to_string())
    }

    /// True if lists show `topic` to the client.
    pub(crate) fn shows(&self, topic: &TopicName) -> bool {
        self.sees(topic) && self.admits(topic)
    }

    /// True if the client may use a part of its tenant only.
    pub(crate) fn is_limited(&self) -> bool {
        self.scope.is_limited()
    }

    /// True if the client may use the consumer group of this id.
    pub(crate) fn has_group(&self, id: &str) -> bool {
        self.scope.has_group(id)
    }

    /// True if the client may use this transactional id.
    pub(crate) fn has_transactional_id(&self, id: &str) -> bool {
        self.scope.has_transactional_id(id)
    }

    /// The device topic that `name` means, if it starts with the prefix.
    fn prefixed(&self, name: &str) -> Option<TopicName> {
        let plain = name.strip_prefix(&*self.device_prefix).filter(|_| !self.device_prefix.is_empty())?;
        TopicName::parse(plain, &self.tenant).ok().filter(|topic| DEVICE_KINDS.contains(&topic.kind()))
    }
}

/// Checks that the names of devices' topics are legal with this prefix and mean no other topic.
pub(crate) fn check_device_prefix(prefix: &str) -> Result<(), NameError> {
    if prefix.is_empty() {
        return Ok(());
    }
    // The longest name must fit. A prefix that begins a reserved name must not end in a possible tenant.
    for tenant in ["t".repeat(TENANT_MAX_CHARS), "t".to_owned()] {
        let tenant = TenantId::new(&tenant)?;
        for kind in DEVICE_KINDS {
            TopicName::user(&format!("{prefix}{}", TopicName::reserved(kind, &tenant)), &tenant)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn topics_of_devices_are_called_with_the_prefix_and_no_others() {
        let names = Namespace::new("hono.").of(&tenant("acme"), true);
        for (kind, called) in [
            (TopicKind::Telemetry, "hono.telemetry.ac.me"),
            (TopicKind::Event, "hono.event.ac.me"),
            (TopicKind::Command, "hono.command.ac.me"),
            (TopicKind::CommandResponse, "hono.command_response.ac.me"),
            (TopicKind::Context, "context.ac.me"),
            (TopicKind::ContextUpdate, "context_update.ac.me"),
            (TopicKind::Mqtt, "mqtt.ac.me"),
        ] {
            let topic = TopicName::reserved(kind, &tenant("ac.me"));
            assert_eq!(names.render(&topic), called);
            assert_eq!(names.parse(called).unwrap(), topic);
            assert!(names.sees(&topic), "{called}");
        }
        for user in ["orders", "hono.orders", "hono.context.acme", "hono.telemetry", "hono"] {
            let topic = TopicName::user(user, &tenant("acme")).unwrap();
            assert_eq!((names.render(&topic).as_str(), names.sees(&topic)), (user, true));
            assert_eq!(names.parse(user).unwrap(), topic);
        }
        let hidden = TopicName::user("hono.telemetry.acme", &tenant("acme")).unwrap();
        assert!(!names.sees(&hidden), "its name means the topic of devices");
        let refusal = names.parse("event.acme").unwrap_err();
        assert_eq!(refusal.error, ResponseError::InvalidTopicException);
        assert!(refusal.why.contains("'hono.event.acme'") && refusal.why.contains("kafka.device_topic_prefix = hono."));
        let plain = Namespace::new("");
        assert_eq!(plain.parse("event.acme").unwrap(), TopicName::reserved(TopicKind::Event, &tenant("acme")));
        assert_eq!(plain.parse("hono.event.acme").unwrap().kind(), TopicKind::User);
    }

    #[test]
    fn a_prefix_that_makes_names_illegal_or_of_other_topics_is_refused() {
        for good in ["", "hono.", "hono", "a-b_c.", "telemetry-", "_hono.", &"p".repeat(182)] {
            check_device_prefix(good).unwrap();
        }
        for wrong in
            ["h o.", "hono/", "kv.", "kv.a.", "telemetry.", "context.", "mqtt.", "_millstream.", &"p".repeat(183)]
        {
            assert!(check_device_prefix(wrong).is_err(), "{wrong}");
        }
    }
}
