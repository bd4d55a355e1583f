//! A subscription: condition, content and target of its notifications.
//!
//! It is stored as the client sent it and compiled when it is read. All users share the compiled parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_log::{Error, Log};
use millstream_types::{TenantId, TopicKind, TopicName, TopicPartition};
use serde_json::{Map, Value};

use super::target::NotificationTarget;
use super::template::JexlCondition;
use crate::query::{Criteria, Selector};
use crate::refusal::Refusal;
use crate::requests::parameters::Paths;

/// A subscription in its compiled form.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) tenant: TenantId,
    /// 24 hexadecimal digits, ascending by creation.
    pub(crate) id: Arc<str>,
    /// The service path of the request.
    pub(crate) path: String,
    pub(crate) paths: Paths,
    /// The document for GET, without counters.
    pub(crate) document: Map<String, Value>,
    pub(crate) since: Since,
    pub(crate) entities: Vec<Selector>,
    pub(crate) condition: SubscriptionCondition,
    pub(crate) content: NotificationContent,
    pub(crate) target: NotificationTarget,
    pub(crate) throttling_ms: i64,
    /// Throttling keeps the latest notification and sends it at the end.
    pub(crate) keeps_latest: bool,
    pub(crate) quiet: Quiet,
    pub(crate) expires_ms: Option<i64>,
    pub(crate) fails_limit: Option<u64>,
    pub(crate) delivery: DeliveryOptions,
}

/// The start position: changes before the creation or reactivation do not concern it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Since {
    /// The change topic's unique id, if the tenant had one.
    pub(crate) topic: u128,
    /// The first offset of each partition that concerns it.
    pub(crate) offsets: Vec<u64>,
}

impl Since {
    /// The position from which changes concern a subscription that begins now.
    ///
    /// # Errors
    /// Those of a look-up: an unknown end must not stand for the beginning, or earlier changes would be told.
    pub(crate) async fn now(log: &Arc<dyn Log>, tenant: &TenantId) -> Result<Self, Error> {
        let (log, name) = (Arc::clone(log), TopicName::reserved(TopicKind::Context, tenant));
        let look = move || {
            let Some(topic) = log.topic(&name) else { return Ok(Self::default()) };
            let end = |number| Ok(log.partition(&TopicPartition::new(name.clone(), number))?.offsets().high.0);
            match (0..topic.config.partitions).map(end).collect() {
                Ok(offsets) => Ok(Self { topic: topic.id.0, offsets }),
                // It was deleted meanwhile.
                Err(Error::UnknownTopic { .. }) => Ok(Self::default()),
                Err(error) => Err(error),
            }
        };
        // The first look at a partition may wait for its leader.
        tokio::task::spawn_blocking(look).await.unwrap_or(Err(Error::Stopped))
    }

    /// The change is before the start position.
    pub(crate) fn is_after(&self, topic: u128, partition: u32, offset: u64) -> bool {
        self.topic == topic && self.offsets.get(partition as usize).is_some_and(|from| offset < *from)
    }
}

/// Known end of throttling: notifications that are certain to be dropped are not rendered. The subscription's owner
/// makes the decision, from the stored state.
#[derive(Debug)]
pub(crate) struct Quiet(AtomicI64);

impl Default for Quiet {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

/// The condition of a subscription.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionCondition {
    /// One of these must differ; an empty list means any attribute.
    pub(crate) attrs: Vec<String>,
    pub(crate) expression: Option<Criteria>,
    pub(crate) jexl: Option<JexlCondition>,
    pub(crate) alterations: Alterations,
    pub(crate) ignores_metadata: bool,
}

/// The kinds of changes that fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alterations {
    pub(crate) create: bool,
    /// Every update, with or without a difference.
    pub(crate) update: bool,
    pub(crate) change: bool,
    pub(crate) delete: bool,
}

impl Default for Alterations {
    fn default() -> Self {
        Self { create: true, update: false, change: true, delete: false }
    }
}

/// The content of a notification.
#[derive(Debug, Default)]
pub(crate) struct NotificationContent {
    pub(crate) attrs: Vec<String>,
    pub(crate) except: Vec<String>,
    pub(crate) metadata: Vec<String>,
    pub(crate) only_changed: bool,
    pub(crate) covered: bool,
    pub(crate) format: Format,
}

/// The format of a notification's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    #[default]
    Normalized,
    SimplifiedNormalized,
    KeyValues,
    SimplifiedKeyValues,
    Values,
}

impl Format {
    pub(crate) const ALL: [(&str, Self); 5] = [
        ("normalized", Self::Normalized),
        ("simplifiedNormalized", Self::SimplifiedNormalized),
        ("keyValues", Self::KeyValues),
        ("simplifiedKeyValues", Self::SimplifiedKeyValues),
        ("values", Self::Values),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("normalized", |(name, _)| name)
    }
}

/// Retries and queue of deliveries; an addition to NGSI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryOptions {
    /// Waiting notifications survive a restart.
    pub(crate) is_durable: bool,
    pub(crate) retry: Retry,
    /// Maximum age of a notification, in milliseconds.
    pub(crate) max_age_ms: u64,
}

/// The failed attempts that are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    Never,
    /// Attempts that the receiver has certainly not taken.
    Safe,
    /// Also attempts that the receiver may have taken: after a timeout, a broken connection, a status of 5xx.
    Always,
}

/// The statuses that a client may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    #[default]
    Active,
    Inactive,
    Oneshot,
}

impl Status {
    pub(crate) fn of(text: &str) -> Option<Self> {
        match text {
            "active" => Some(Self::Active),
            "inactive" => Some(Self::Inactive),
            "oneshot" => Some(Self::Oneshot),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
            Self::Oneshot => "oneshot",
        }
    }
}

/// Identity and start position of a subscription.
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) path: String,
    pub(crate) since: Since,
}

impl Subscription {
    /// Compiles a document of a client or a record.
    pub(crate) fn compile(identity: Identity, document: Map<String, Value>) -> Result<Self, Refusal> {
        super::body::compile(identity, document)
    }

    /// Refuses parts that only stored subscriptions may have.
    pub(crate) fn check_sent(&self) -> Result<(), Refusal> {
        self.target.check()?;
        super::body::check_priorities(&self.document)
    }

    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Records that a notification made at this time is sent.
    pub(crate) fn sends(&self, made_ms: i64) {
        self.quiet.0.fetch_max(made_ms.saturating_add(self.throttling_ms), Ordering::Relaxed);
    }

    /// Throttling certainly drops a notification made at this time. False does not mean that it is sent.
    pub(crate) fn is_quiet(&self, now_ms: i64) -> bool {
        self.throttling_ms > 0 && !self.keeps_latest && now_ms < self.quiet.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use millstream_log::TopicConfig;
    use millstream_testkit::MemoryLog;
    use millstream_types::SystemClock;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subscription_is_quiet_only_while_throttling_is_certain_to_drop() {
        let of = |throttling_s: u64, throttled: &str| {
            let identity =
                Identity { tenant: TenantId::default(), id: "1".into(), path: "/#".into(), since: Since::default() };
            let document = json!({
                "subject": {"entities": [{"idPattern": ".*"}]},
                "notification": {"http": {"url": "http://localhost/n"}, "delivery": {"throttled": throttled}},
                "throttling": throttling_s,
            });
            let Value::Object(document) = document else { unreachable!() };
            Subscription::compile(identity, document).unwrap()
        };
        let dropping = of(5, "drop");
        assert!(!dropping.is_quiet(0), "nothing has gone yet");
        dropping.sends(1_000);
        assert_eq!([1_000, 5_999, 6_000].map(|now_ms| dropping.is_quiet(now_ms)), [true, true, false]);
        dropping.sends(500);
        assert!(dropping.is_quiet(5_999), "one that was made before shortens nothing");
        for never in [of(0, "drop"), of(5, "latest")] {
            never.sends(1_000);
            assert!(!never.is_quiet(1_001));
        }
    }

    #[tokio::test]
    async fn a_subscription_begins_at_the_end_of_the_changes_or_is_refused_if_that_is_unknown() {
        let memory = MemoryLog::open(Arc::new(SystemClock::default()));
        let (log, tenant): (Arc<dyn Log>, _) = (memory.clone(), TenantId::default());
        assert_eq!(Since::now(&log, &tenant).await.unwrap(), Since::default(), "there is no topic yet");
        let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
        let topic = log.create_topic(&TopicName::reserved(TopicKind::Context, &tenant), &config).unwrap();
        let end = Since { topic: topic.id.0, offsets: vec![0, 0] };
        assert_eq!(Since::now(&log, &tenant).await.unwrap(), end);
        memory.lose_leaders();
        let refused = Since::now(&log, &tenant).await.unwrap_err();
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    }
}
