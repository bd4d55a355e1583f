//! The topics that the members of a group have subscribed to, as consumers write them into their metadata.

use std::collections::HashSet;

use bytes::{Buf, Bytes};

use super::{ClassicGroup, GroupState};

/// The protocol type of groups whose metadata are subscriptions.
const CONSUMER: &str = "consumer";

/// The topics that a group reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subscriptions {
    Topics(HashSet<Bytes>),
    /// A member's metadata cannot be read, and may name any topic.
    Any,
    /// The group has members that are no consumers.
    NoConsumers,
}

impl Subscriptions {
    pub(crate) fn has(&self, topic: &str) -> bool {
        match self {
            Self::Topics(topics) => topics.contains(topic.as_bytes()),
            Self::Any | Self::NoConsumers => true,
        }
    }
}

impl ClassicGroup {
    /// The topics that members have subscribed to, in any of the protocols that they support.
    pub(crate) fn subscriptions(&self) -> Subscriptions {
        if self.members.is_empty() && matches!(self.state, GroupState::Empty | GroupState::Dead) {
            return Subscriptions::Topics(HashSet::new());
        }
        if self.protocol_type != CONSUMER {
            return Subscriptions::NoConsumers;
        }
        let mut subscribed = HashSet::new();
        for (_, metadata) in self.members.values().flat_map(|member| &member.protocols) {
            let Some(topics) = topics(metadata) else { return Subscriptions::Any };
            subscribed.extend(topics);
        }
        Subscriptions::Topics(subscribed)
    }
}

/// The topics of a subscription: its version, and a list of names. What follows differs by version.
fn topics(metadata: &Bytes) -> Option<Vec<Bytes>> {
    let mut metadata = metadata.clone();
    metadata.try_get_i16().ok().filter(|version| *version >= 0)?;
    let count = metadata.try_get_i32().ok().filter(|count| *count >= 0)?;
    (0..count).map(|_| take_text(&mut metadata)).collect()
}

fn take_text(metadata: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(metadata.try_get_i16().ok()?).ok()?;
    (length <= metadata.len()).then(|| metadata.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_from_subscriptions_and_nothing_from_other_bytes() {
        let two = b"\0\x03\0\0\0\x02\0\x01a\0\x06orders\xff\xff\xff\xff";
        assert_eq!(topics(&Bytes::from_static(two)).unwrap(), ["a", "orders"]);
        assert_eq!(topics(&Bytes::from_static(b"\0\0\0\0\0\0")).unwrap(), [] as [&str; 0]);
        for other in
            [&b""[..], b"\0", b"topics", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\x01\0\x02a", b"\xff\xff\0\0\0\0"]
        {
            assert_eq!(topics(&Bytes::copy_from_slice(other)), None, "{other:?}");
        }
    }
}
