//! A notification: rendered once, the same in every attempt.

use std::borrow::Cow;

use millstream_outgoing::{HttpRequest, HttpUrl};
use millstream_types::{murmur2, partition_of_key};
use serde::{Deserialize, Serialize};

use super::change::ChangePosition;
use super::kafka_target::why_no_topic;
use super::target::TEXT_MAX_BYTES;
use super::target::{Http, NotificationTarget};
use crate::flow_control::Token;
use crate::state_topic::RECORD_MAX_BYTES;

/// Lanes of a subscription, which are delivered concurrently.
const LANES: u32 = 16;

/// Largest stored notification: its record holds its texts as JSON, where some characters take two bytes.
pub(crate) const STORED_MAX_BYTES: usize = RECORD_MAX_BYTES / 2;

/// A lane of a subscription: its notifications are delivered one after the other. All notifications of an entity
/// are in the same lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Lane(u32);

impl Lane {
    /// The default lane, which records leave out.
    fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// The lane of all entities with this id.
    pub(crate) fn of(entity_id: &str) -> Self {
        Self(partition_of_key(entity_id.as_bytes(), LANES).0)
    }
}

/// A message with its subscription and creation time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notification {
    /// Position of the change; unique within a subscription.
    pub(crate) place: ChangePosition,
    #[serde(default, skip_serializing_if = "Lane::is_first")]
    pub(crate) lane: Lane,
    pub(crate) made_ms: i64,
    pub(crate) message: NotificationMessage,
    /// Ends with the notification, for flow control.
    #[serde(skip)]
    pub(crate) token: Token,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredMessage")]
pub(crate) enum NotificationMessage {
    Http(HttpRequest),
    /// Goes to the current broker of the subscription.
    Mqtt {
        topic: String,
        payload: String,
    },
    /// Goes to the current cluster of the subscription.
    Kafka(KafkaMessage),
    /// Cannot be sent: the macros gave an invalid URL or topic, or the message is too large.
    Impossible {
        why: String,
    },
}

/// A record for a topic of Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KafkaMessage {
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) value: String,
    /// Selects the partition: see [`partition_hash`].
    pub(crate) place: u32,
}

impl KafkaMessage {
    fn size_bytes(&self) -> usize {
        let of_header = |(name, value): &(String, String)| size_of::<(String, String)>() + name.len() + value.len();
        let headers: usize = self.headers.iter().map(of_header).sum();
        self.topic.len() + self.key.as_ref().map_or(0, String::len) + headers + self.value.len()
    }
}

/// The number whose remainder by the number of partitions is a key's partition, as for Kafka's own clients.
pub(crate) fn partition_hash(key: &str) -> u32 {
    murmur2(key.as_bytes()) & 0x7fff_ffff
}

/// The stored form of a message.
#[derive(Deserialize)]
enum StoredMessage {
    Http { method: String, url: String, headers: Vec<(String, String)>, body: String },
    Mqtt { topic: String, payload: String },
    Kafka(KafkaMessage),
    Impossible { why: String },
}

impl From<StoredMessage> for NotificationMessage {
    fn from(stored: StoredMessage) -> Self {
        match stored {
            StoredMessage::Http { method, url: text, headers, body } => match HttpUrl::read(&text) {
                Some(url) => Self::Http(HttpRequest::write(&url, &method, &headers, &body)),
                None => Self::no_url(&text),
            },
            StoredMessage::Mqtt { topic, payload } => Self::mqtt(topic, payload),
            StoredMessage::Kafka(message) => Self::kafka(message),
            StoredMessage::Impossible { why } => Self::Impossible { why },
        }
    }
}

impl NotificationMessage {
    /// A message for a broker; `Impossible` if the topic is invalid.
    pub(crate) fn mqtt(topic: String, payload: String) -> Self {
        match why_no_mqtt_topic(&topic) {
            None => Self::Mqtt { topic, payload },
            Some(why) => Self::Impossible { why },
        }
    }

    /// A record for a cluster; `Impossible` if the topic is invalid.
    pub(crate) fn kafka(message: KafkaMessage) -> Self {
        match why_no_topic(&message.topic) {
            None => Self::Kafka(message),
            Some(why) => Self::Impossible { why },
        }
    }

    /// The message for `target`, which may have changed since the message was made. Macros are already filled: of a URL
    /// with macros only the host changes, and a topic with macros stays.
    pub(crate) fn to(&self, target: &NotificationTarget) -> Cow<'_, Self> {
        match (self, target) {
            (Self::Http(request), NotificationTarget::Http(Http { fixed, base, .. })) => {
                let moved = match (fixed, base) {
                    (Some(url), _) => request.to(url),
                    (None, Some(base)) => request.at(base),
                    (None, None) => Cow::Borrowed(request),
                };
                match moved {
                    Cow::Borrowed(_) => Cow::Borrowed(self),
                    Cow::Owned(request) => Cow::Owned(Self::Http(request)),
                }
            }
            (Self::Kafka(message), NotificationTarget::Kafka(kafka)) => match kafka.fixed_topic() {
                Some(fixed) if fixed != message.topic => {
                    Cow::Owned(Self::kafka(KafkaMessage { topic: fixed.to_owned(), ..message.clone() }))
                }
                _ => Cow::Borrowed(self),
            },
            (Self::Mqtt { topic, payload }, NotificationTarget::Mqtt(mqtt)) => match mqtt.fixed_topic() {
                Some(fixed) if fixed != topic => Cow::Owned(Self::mqtt(fixed.to_owned(), payload.clone())),
                _ => Cow::Borrowed(self),
            },
            (Self::Http(request), NotificationTarget::Mqtt(mqtt)) => match mqtt.fixed_topic() {
                Some(topic) => Cow::Owned(Self::mqtt(topic.to_owned(), request.body().to_owned())),
                None => Cow::Owned(Self::made_for("a receiver over HTTP")),
            },
            (Self::Impossible { .. }, _) => Cow::Borrowed(self),
            (Self::Mqtt { .. }, _) => Cow::Owned(Self::made_for("an MQTT broker")),
            (Self::Kafka(_), _) => Cow::Owned(Self::made_for("Kafka")),
            (Self::Http(_), NotificationTarget::Kafka(_)) => Cow::Owned(Self::made_for("a receiver over HTTP")),
        }
    }

    /// The error for a message that the new target of its subscription cannot take.
    fn made_for(what: &str) -> Self {
        Self::Impossible { why: format!("it was made for {what}") }
    }

    /// The error for an invalid URL.
    pub(crate) fn no_url(text: &str) -> Self {
        Self::Impossible { why: format!("'{text}' is no URL that can be sent to") }
    }
}

/// The reason why a name is no topic of MQTT.
fn why_no_mqtt_topic(topic: &str) -> Option<String> {
    if topic.len() > TEXT_MAX_BYTES {
        return Some(format!("a topic of {} bytes: at most {TEXT_MAX_BYTES} can be published to", topic.len()));
    }
    let is_none = topic.is_empty() || topic.contains(['+', '#', '\0']);
    is_none.then(|| format!("'{topic}' is no topic that can be published to"))
}

impl Notification {
    /// A record can hold it. A notification from before its subscription became durable may be larger.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.size_bytes() <= STORED_MAX_BYTES
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let texts = match &self.message {
            NotificationMessage::Http(request) => request.bytes().len(),
            NotificationMessage::Mqtt { topic, payload } => topic.len() + payload.len(),
            NotificationMessage::Kafka(message) => message.size_bytes(),
            NotificationMessage::Impossible { why } => why.len(),
        };
        size_of::<Self>() + texts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entities_have_a_lane_each_and_together_use_all() {
        let lanes = |prefix: &str| (0..1_000).map(|n| Lane::of(&format!("{prefix}{n}"))).collect::<Vec<_>>();
        assert_eq!(lanes("urn:room:"), lanes("urn:room:"));
        assert_eq!(lanes("urn:room:").into_iter().collect::<HashSet<_>>().len(), LANES as usize);
    }
}
