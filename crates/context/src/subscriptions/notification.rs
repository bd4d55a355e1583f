//! A notification as it goes out: made once, the same in every attempt.

use millstream_types::partition_of_key;
use serde::{Deserialize, Serialize};

use super::change::Place;
use super::flows::Token;
use super::http_request::{HttpRequest, HttpUrl};
use super::mqtt_receiver::TEXT_MAX_BYTES;
use crate::config::RECORD_MAX_BYTES;

/// Lanes of a subscription: as many notifications of it are under way at once.
const LANES: u32 = 16;

/// Largest notification that is stored: its record has its texts as JSON, where some characters take two.
pub(crate) const STORED_MAX_BYTES: usize = RECORD_MAX_BYTES / 2;

/// Which lane of its subscription a notification is in: those of one lane are delivered one after the other. All of one
/// entity are in the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Lane(u32);

impl Lane {
    /// That of records which name none.
    fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// The lane of all entities with this id.
    pub(crate) fn of(entity_id: &str) -> Self {
        Self(partition_of_key(entity_id.as_bytes(), LANES).0)
    }
}

/// What is to be sent, to whom it belongs and when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notification {
    /// The change that it tells of; unique within a subscription.
    pub(crate) place: Place,
    #[serde(default, skip_serializing_if = "Lane::is_first")]
    pub(crate) lane: Lane,
    pub(crate) made_ms: i64,
    pub(crate) message: Message,
    /// Somebody may wait for its end.
    #[serde(skip)]
    pub(crate) token: Token,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(crate) enum Message {
    Http(HttpRequest),
    /// To the broker that the subscription names when it is sent.
    Mqtt {
        topic: String,
        payload: String,
    },
    /// Nothing: the macros have made no address of the URL or no topic, or the message would be too large.
    Impossible {
        why: String,
    },
}

/// A message as it is stored.
#[derive(Deserialize)]
enum Stored {
    Http { method: String, url: String, headers: Vec<(String, String)>, body: String },
    Mqtt { topic: String, payload: String },
    Impossible { why: String },
}

impl From<Stored> for Message {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Http { method, url: text, headers, body } => match HttpUrl::read(&text) {
                Some(url) => Self::Http(HttpRequest::write(&url, &method, &headers, &body)),
                None => Self::no_url(&text),
            },
            Stored::Mqtt { topic, payload } => Self::mqtt(topic, payload),
            Stored::Impossible { why } => Self::Impossible { why },
        }
    }
}

impl Message {
    /// For a broker; impossible if the topic is none that can be published to.
    pub(crate) fn mqtt(topic: String, payload: String) -> Self {
        match why_no_topic(&topic) {
            None => Self::Mqtt { topic, payload },
            Some(why) => Self::Impossible { why },
        }
    }

    /// For a URL that nothing can be sent to.
    pub(crate) fn no_url(text: &str) -> Self {
        Self::Impossible { why: format!("'{text}' is no URL that can be sent to") }
    }
}

/// Why nothing can be published to a topic of that name.
fn why_no_topic(topic: &str) -> Option<String> {
    if topic.len() > TEXT_MAX_BYTES {
        return Some(format!("a topic of {} bytes: at most {TEXT_MAX_BYTES} can be published to", topic.len()));
    }
    let is_none = topic.is_empty() || topic.contains(['+', '#', '\0']);
    is_none.then(|| format!("'{topic}' is no topic that can be published to"))
}

impl Notification {
    /// Whether a record can hold it. One that was made before its subscription began to keep what waits may be larger.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.size_bytes() <= STORED_MAX_BYTES
    }

    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let texts = match &self.message {
            Message::Http(request) => request.bytes().len(),
            Message::Mqtt { topic, payload } => topic.len() + payload.len(),
            Message::Impossible { why } => why.len(),
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
