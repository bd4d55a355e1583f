//! A message that a client has sent, borrowed from the buffer that it was read into.

use crate::ingest;
use std::sync::Arc;

use millstream_mqtt::Publish;
use millstream_mqtt::property::user_properties;

/// A PUBLISH that was decoded and not yet appended.
#[derive(Clone)]
pub(super) struct IncomingPublish<'a> {
    pub(super) topic: Topic<'a>,
    pub(super) publish: Publish<'a>,
}

impl<'a> IncomingPublish<'a> {
    /// Bytes of its payload and of its user properties.
    pub(super) fn size_bytes(&self) -> usize {
        let properties = user_properties(self.publish.properties.bytes).map(|(name, value)| name.len() + value.len());
        self.publish.payload.len() + properties.sum::<usize>()
    }

    /// The media type that it states in a property.
    pub(super) fn stated_content_type(&self) -> Option<&'a str> {
        self.publish.properties.content_type.filter(|value| !value.is_empty())
    }
}

impl ingest::Message for IncomingPublish<'_> {
    fn payload(&self) -> &[u8] {
        self.publish.payload
    }

    fn content_type(&self) -> Option<&[u8]> {
        self.stated_content_type().map(str::as_bytes)
    }

    fn is_retained(&self) -> bool {
        self.publish.retain
    }

    fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        user_properties(self.publish.properties.bytes)
    }
}

/// A message's topic: as it stands in the packet, or the one that its alias stands for.
#[derive(Debug, Clone)]
pub(super) enum Topic<'a> {
    Named(&'a str),
    Alias(Arc<str>),
}

impl Topic<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Named(topic) => topic,
            Self::Alias(topic) => topic,
        }
    }
}
