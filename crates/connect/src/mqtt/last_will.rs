//! The will of a client: the message to publish when its connection ends without DISCONNECT.

use super::ADAPTER;
use super::broker::message::{MessageDraft, expires};
use super::incoming::{IncomingPublish, Topic};
use millstream_mqtt::property::{MESSAGE_EXPIRY, WILL_DELAY, without};
use millstream_mqtt::{Publish, PublishProperties, Qos, Will};

/// The will of a client: the message to publish when its connection ends without DISCONNECT.
#[derive(Debug)]
pub(crate) struct LastWill {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) topic: Box<str>,
    pub(super) content_type: Option<Box<str>>,
    pub(crate) payload: Box<[u8]>,
    /// Seconds that the session may be away before the will is published.
    pub(super) delay_s: u32,
    expiry_s: Option<u32>,
    /// Encoded properties that pass through as they came.
    properties: Vec<u8>,
}

impl LastWill {
    pub(super) fn of(will: &Will<'_>) -> Self {
        Self {
            qos: will.qos,
            retain: will.retain,
            topic: will.topic.into(),
            content_type: will.properties.content_type.map(Into::into),
            payload: will.payload.into(),
            delay_s: will.delay_s,
            expiry_s: will.properties.expiry_s,
            properties: without(will.properties.bytes, &[WILL_DELAY, MESSAGE_EXPIRY]),
        }
    }

    /// When it is void if it is published now; empty if never.
    pub(super) fn expires(&self, now_ms: i64) -> String {
        expires(self.expiry_s, now_ms)
    }

    /// The will as a message of the private space.
    pub(super) fn draft<'a>(
        &'a self,
        client: &'a str,
        device: &'a str,
        expires: &'a str,
        is_routed: bool,
    ) -> MessageDraft<'a> {
        MessageDraft {
            is_routed,
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            adapter: ADAPTER,
            client,
            device,
            content_type: self.content_type.as_deref(),
            properties: &self.properties,
            expires,
        }
    }

    /// The will as a message that its client sends.
    pub(super) fn as_item(&self) -> IncomingPublish<'_> {
        let properties = PublishProperties {
            content_type: self.content_type.as_deref(),
            bytes: &self.properties,
            ..PublishProperties::default()
        };
        let (qos, retain, topic, payload) = (self.qos, self.retain, &*self.topic, &*self.payload);
        IncomingPublish {
            topic: Topic::Named(topic),
            publish: Publish { dup: false, retain, qos, topic, id: 0, properties, payload },
        }
    }
}
