//! A notification as it goes out: made once, the same in every attempt.

use serde::{Deserialize, Serialize};

use super::change::Place;
use super::flows::Token;

/// What is to be sent, to whom it belongs and when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notification {
    /// The change that it tells of; unique within a subscription.
    pub(crate) place: Place,
    pub(crate) made_ms: i64,
    pub(crate) message: Message,
    /// Somebody may wait for its end.
    #[serde(skip)]
    pub(crate) token: Token,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    Http {
        method: String,
        url: String,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// To the broker that the subscription names when it is sent.
    Mqtt {
        topic: String,
        payload: String,
    },
    /// Nothing: the macros have made no address of the URL, or the message would be too large.
    Impossible {
        why: String,
    },
}

impl Notification {
    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let texts = match &self.message {
            Message::Http { url, headers, body, .. } => {
                let headers = headers.iter().map(|(name, value)| name.len() + value.len() + 48);
                url.len() + body.len() + headers.sum::<usize>()
            }
            Message::Mqtt { topic, payload } => topic.len() + payload.len(),
            Message::Impossible { why } => why.len(),
        };
        size_of::<Self>() + texts
    }
}
