//! Sends retained messages to new subscriptions.

use std::ops::Bound;
use std::sync::Arc;

use super::message::{Message, RetainedMap};
use super::queue::QueueEntry;
use super::session::SessionSubscription;
use super::{Detached, SessionLink};
use crate::topic_filter::covers;

impl SessionLink {
    /// Sends what is retained on the topics of `pattern`.
    pub(crate) fn send_retained(
        &self,
        retained: &RetainedMap,
        pattern: &str,
        what: &SessionSubscription,
    ) -> Result<(), Detached> {
        let limits = self.broker.limits();
        let entries = matching(retained, pattern).map(|message| QueueEntry {
            offset: None,
            qos: message.qos.min(what.qos),
            group: None,
            dup: false,
            retain: true,
            ids: if what.id == 0 { Box::default() } else { Box::new([what.id]) },
            size_bytes: u32::try_from(message.size_bytes()).unwrap_or(u32::MAX),
            message: Some(Arc::clone(message)),
        });
        let lost = self.with(|session| session.stand(entries, &limits))?;
        self.count(0, lost);
        Ok(())
    }
}

/// Retained messages on the topics of `pattern`, in the order of topics.
fn matching<'a>(retained: &'a RetainedMap, pattern: &'a str) -> impl Iterator<Item = &'a Arc<Message>> {
    // All topics that match begin with the text before the first wildcard, but for the `/` of a last `/#`.
    let fixed = pattern.find(['+', '#']).map_or(pattern, |at| pattern[..at].trim_end_matches('/'));
    let range = (Bound::Included(fixed), Bound::Unbounded);
    let near = retained.range::<_, str>(range).take_while(move |(topic, _)| topic.starts_with(fixed));
    near.filter(move |(topic, _)| covers(pattern, topic)).map(|(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_mqtt::Qos;

    #[test]
    fn a_pattern_finds_the_same_topics_as_a_comparison_with_each() {
        let topics = ["a", "a/b", "a/b/c", "a/c", "ab", "b", "/", "/a", "$x/a", "a/"];
        let message = |topic: &str| {
            Arc::new(Message {
                topic: topic.into(),
                payload: Box::default(),
                qos: Qos::AtLeastOnce,
                properties: Box::default(),
                expires_ms: None,
                _room: None,
            })
        };
        let retained: RetainedMap = topics.iter().map(|topic| (Arc::from(*topic), message(topic))).collect();
        for pattern in ["a", "a/#", "#", "+", "a/+", "+/b", "/#", "/+", "a/b/#", "$x/#", "$x/a", "none", "a/+/c", "+/#"]
        {
            let mut expected: Vec<&str> = topics.into_iter().filter(|topic| covers(pattern, topic)).collect();
            expected.sort_unstable();
            let found: Vec<&str> = matching(&retained, pattern).map(|message| &*message.topic).collect();
            assert_eq!(found, expected, "{pattern}");
        }
    }
}
