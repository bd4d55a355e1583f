//! Topics and filters of MQTT clients in the private space of their tenant: validity, matching and coverage.

/// Levels that a topic or a filter may have.
pub(crate) const LEVELS_MAX: usize = 128;

/// A filter as a client subscribes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicFilter<'a> {
    /// The group that shares the messages, if it is a shared subscription.
    pub(crate) group: Option<&'a str>,
    /// The pattern that topics are compared with.
    pub(crate) pattern: &'a str,
}

impl<'a> TopicFilter<'a> {
    /// `None` if it is no valid filter.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (group, pattern) = match text.strip_prefix("$share/") {
            None => (None, text),
            Some(rest) => {
                let (group, pattern) = rest.split_once('/')?;
                if group.is_empty() || group.contains(['+', '#']) {
                    return None;
                }
                (Some(group), pattern)
            }
        };
        is_pattern(pattern).then_some(Self { group, pattern })
    }
}

/// True if a topic or filter begins with a word that Hono reserves. Such a topic is not part of the private space.
pub(crate) fn is_reserved(topic: &str) -> bool {
    let bytes = topic.as_bytes();
    let first = bytes.iter().position(|byte| *byte == b'/').map_or(bytes, |end| &bytes[..end]);
    matches!(first, b"t" | b"telemetry" | b"e" | b"event" | b"c" | b"command" | b"error")
}

/// True if the pattern is valid: each wildcard fills its level, and `#` occurs only in the last level.
pub(crate) fn is_pattern(pattern: &str) -> bool {
    let is_level = |level: &str| !level.contains(['+', '#']) || level.len() == 1;
    let is_last = pattern.find('#').is_none_or(|at| at + 1 == pattern.len());
    !pattern.is_empty() && is_last && pattern.split('/').all(is_level) && has_room(pattern)
}

/// The reason for which a topic is invalid for messages; `None` if it is valid.
pub(crate) fn why_not_published(topic: &str) -> Option<&'static str> {
    if topic.is_empty() {
        return Some("a topic has at least one character");
    }
    if topic == "$SYS" || topic.starts_with("$SYS/") || topic.starts_with("$share/") {
        return Some("$SYS and $share are reserved");
    }
    (!has_room(topic)).then_some("a topic has at most 128 levels")
}

fn has_room(topic: &str) -> bool {
    topic.bytes().filter(|byte| *byte == b'/').count() < LEVELS_MAX
}

/// True if `outer` matches every topic that `inner` matches. A topic is a pattern that matches itself.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    if inner.starts_with('$') && outer.starts_with(['+', '#']) {
        return false;
    }
    let (mut outer, mut inner) = (outer.split('/'), inner.split('/'));
    loop {
        match (outer.next(), inner.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(_), Some("#")) | (None, Some(_)) | (Some(_), None) => return false,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(other)) if level == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_alone_in_their_level_and_hash_in_the_last() {
        for valid in ["#", "+", "a/#", "+/+", "a/+/b", "/", "//", "a//#", "$x/+", " "] {
            assert!(is_pattern(valid), "{valid}");
        }
        for wrong in ["", "a#", "#/a", "a+", "a/b+/c", "##", "a/#/b", "++"] {
            assert!(!is_pattern(wrong), "{wrong}");
        }
        assert!(is_pattern(&vec!["a"; LEVELS_MAX].join("/")));
        assert!(!is_pattern(&vec!["a"; LEVELS_MAX + 1].join("/")));
    }

    #[test]
    fn a_shared_filter_names_its_group_and_its_pattern() {
        assert_eq!(TopicFilter::parse("a/#"), Some(TopicFilter { group: None, pattern: "a/#" }));
        assert_eq!(TopicFilter::parse("$share/g/a/#"), Some(TopicFilter { group: Some("g"), pattern: "a/#" }));
        for wrong in ["$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/g/a#"] {
            assert_eq!(TopicFilter::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_pattern_covers_topics_and_narrower_patterns() {
        for (outer, inner) in [
            ("a", "a"),
            ("+", "a"),
            ("#", "a/b"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("a/+/c", "a/b/c"),
            ("+/+", "/"),
            ("#", "a/#"),
            ("a/+", "a/+"),
            ("$x/#", "$x/y"),
        ] {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("a", "b"),
            ("+", "a/b"),
            ("a/+", "a"),
            ("a/+", "a/#"),
            ("a/b", "a/+"),
            ("#", "$x/y"),
            ("+/y", "$x/y"),
            ("a", "a/b"),
            ("+", "#"),
        ] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }

    #[test]
    fn clients_may_not_publish_to_topics_of_the_server() {
        for wrong in ["", "$SYS", "$SYS/x", "$share/g/a"] {
            assert!(why_not_published(wrong).is_some(), "{wrong}");
        }
        for right in ["/", "a", "$x/a", "$SYSTEM"] {
            assert_eq!(why_not_published(right), None, "{right}");
        }
    }
}
