//! A subscription: what it wants to hear of, what of that it wants to see, and where that goes.
//!
//! It is stored as the client gave it, and compiled when it is read; compiled parts are shared by all who match it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_types::TenantId;
use serde_json::{Map, Value};

use super::target::Target;
use crate::query::{Criteria, Selector};
use crate::refusal::Refusal;
use crate::request::Paths;

/// A subscription and everything that follows from what it says.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) tenant: TenantId,
    /// 24 hexadecimal digits, ascending by creation.
    pub(crate) id: Arc<str>,
    /// The service path header that it came with.
    pub(crate) path: String,
    pub(crate) paths: Paths,
    /// As GET shows it, without what is counted.
    pub(crate) document: Map<String, Value>,
    pub(crate) since: Since,
    pub(crate) entities: Vec<Selector>,
    pub(crate) condition: Condition,
    pub(crate) content: Content,
    pub(crate) target: Target,
    pub(crate) throttling_ms: i64,
    /// What is throttled is not dropped: the latest goes when the time is up.
    pub(crate) keeps_latest: bool,
    pub(crate) quiet: Quiet,
    pub(crate) expires_ms: Option<i64>,
    pub(crate) fails_limit: Option<u64>,
    pub(crate) delivery: Delivery,
}

/// From where on changes concern it: those before it was made or woken do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Since {
    /// The change topic's unique id, if the tenant had one.
    pub(crate) topic: u128,
    /// Of each partition the first offset that concerns it.
    pub(crate) offsets: Vec<u64>,
}

impl Since {
    /// Whether a change at this place is early enough not to concern it.
    pub(crate) fn is_after(&self, topic: u128, partition: u32, offset: u64) -> bool {
        self.topic == topic && self.offsets.get(partition as usize).is_some_and(|from| offset < *from)
    }
}

/// Until when throttling lets nothing go, as far as is known: what is certain to be dropped need not be made. Whether
/// anything goes is decided by the subscription's owner, from what is stored.
#[derive(Debug)]
pub(crate) struct Quiet(AtomicI64);

impl Default for Quiet {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

/// When it fires.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// Any of these must differ; none means any attribute.
    pub(crate) attrs: Vec<String>,
    pub(crate) expression: Option<Criteria>,
    pub(crate) alterations: Alterations,
    pub(crate) ignores_metadata: bool,
}

/// Which kinds of change fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alterations {
    pub(crate) create: bool,
    /// Every update, whether anything differs or not.
    pub(crate) update: bool,
    pub(crate) change: bool,
    pub(crate) delete: bool,
}

impl Default for Alterations {
    fn default() -> Self {
        Self { create: true, update: false, change: true, delete: false }
    }
}

/// What of the entity is sent.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) attrs: Vec<String>,
    pub(crate) except: Vec<String>,
    pub(crate) metadata: Vec<String>,
    pub(crate) only_changed: bool,
    pub(crate) covered: bool,
    pub(crate) format: Format,
}

/// The shape of a notification's body.
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
    /// Every format, by name.
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

/// How hard is tried to deliver; an addition to NGSI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Waiting notifications survive a restart.
    pub(crate) is_durable: bool,
    pub(crate) retry: Retry,
    /// How long a notification is tried, milliseconds.
    pub(crate) max_age_ms: u64,
}

/// Which failed attempts are made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// None.
    Never,
    /// Those that the receiver certainly has not taken.
    Safe,
    /// Also those of which that is not known: after a timeout, a broken connection, a status of 5xx.
    Always,
}

/// What a client may set as status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    #[default]
    Active,
    Inactive,
    Oneshot,
}

impl Status {
    /// The status of that name.
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

/// Who a subscription is, and where it begins.
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) path: String,
    pub(crate) since: Since,
}

impl Subscription {
    /// Compiles what a client has given, or a record holds.
    pub(crate) fn compile(identity: Identity, document: Map<String, Value>) -> Result<Self, Refusal> {
        super::body::compile(identity, document)
    }

    /// Refuses what is not taken from clients, though it can be read where it is stored already.
    pub(crate) fn check_sent(&self) -> Result<(), Refusal> {
        self.target.check()?;
        super::body::check_priorities(&self.document)
    }

    /// Whether it is over at this time.
    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// A notification that was made at this time goes out.
    pub(crate) fn sends(&self, made_ms: i64) {
        self.quiet.0.fetch_max(made_ms.saturating_add(self.throttling_ms), Ordering::Relaxed);
    }

    /// Whether throttling drops what is made at this time. False does not say that it goes.
    pub(crate) fn is_quiet(&self, now_ms: i64) -> bool {
        self.throttling_ms > 0 && !self.keeps_latest && now_ms < self.quiet.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
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
}
