//! Topics: Hono's own, which begin with a few reserved words, and all others, which are the tenant's private space.

use std::borrow::Cow;

use crate::sender::Target;
use crate::streams::Stream;
use crate::topic_filter::is_reserved;

/// What a client publishes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// Telemetry or events.
    Stream { stream: Stream, target: Target<'a>, address: &'a str, bag: Bag<'a> },
    /// An answer to a command. Request id and status are as they were sent.
    Reply { request_id: &'a str, status: &'a str, target: Target<'a>, address: &'a str, bag: Bag<'a> },
    /// A reserved word with something behind it that nobody may publish to; says what is wrong with it.
    Wrong(&'static str),
    /// The tenant's private space.
    Private,
}

/// What is to happen when a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnError {
    /// Told on the error topic, if the client listens there; else the connection ends.
    #[default]
    Default,
    /// The connection ends.
    Disconnect,
    /// Acknowledged all the same.
    Ignore,
    /// Not acknowledged.
    SkipAck,
}

/// Properties that are part of the topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Bag<'a> {
    pub(super) content_type: Option<Cow<'a, str>>,
    pub(super) ttl_s: Option<u64>,
    pub(super) correlation_id: Option<Cow<'a, str>>,
    pub(super) on_error: OnError,
}

/// Whether a filter is about commands.
pub(super) fn is_about_commands(filter: &str) -> bool {
    matches!(filter.split('/').next(), Some("c" | "command"))
}

impl<'a> Place<'a> {
    /// The device that it names.
    pub(super) fn target(&self) -> Option<Target<'a>> {
        match self {
            Self::Stream { target, .. } | Self::Reply { target, .. } => Some(*target),
            Self::Wrong(_) | Self::Private => None,
        }
    }

    pub(super) fn of(topic: &'a str) -> Self {
        // What most devices publish to.
        let own = |stream| Self::Stream { stream, target: Target::Caller, address: topic, bag: Bag::default() };
        match topic {
            "t" | "telemetry" => return own(Stream::Telemetry),
            "e" | "event" => return own(Stream::Event),
            _ if !is_reserved(topic) => return Self::Private,
            _ => {}
        }
        let (address, bag) = match topic.rfind("/?") {
            Some(at) => match Bag::parse(&topic[at + 2..]) {
                Ok(bag) => (&topic[..at], bag),
                Err(rule) => return Self::Wrong(rule),
            },
            None => (topic, Bag::default()),
        };
        // Empty levels at the end do not count, as with Hono: `telemetry//` is of the device itself.
        let mut segments = address.trim_end_matches('/').split('/');
        let stream = match segments.next() {
            Some("t" | "telemetry") => Stream::Telemetry,
            Some("e" | "event") => Stream::Event,
            Some("c" | "command") => return Self::reply(address, bag),
            _ => return Self::Wrong("devices publish to telemetry, t, event, e, command or c"),
        };
        let target = match (segments.next(), segments.next(), segments.next()) {
            (None, ..) => Target::Caller,
            (Some(""), Some(device), None) => Target::Named { tenant: None, device },
            (Some(tenant), Some(device), None) if !device.is_empty() => Target::Named { tenant: Some(tenant), device },
            _ => return Self::Wrong("use the word alone, WORD/TENANT/DEVICE, or WORD//DEVICE"),
        };
        Self::Stream { stream, target, address, bag }
    }

    fn reply(address: &'a str, bag: Bag<'a>) -> Self {
        let levels: Vec<&str> = address.splitn(7, '/').collect();
        let [_, tenant, device, "s" | "res", request_id, status] = levels[..] else {
            return Self::Wrong("a command is answered on c///s/REQUEST-ID/STATUS, or c//DEVICE/s/REQUEST-ID/STATUS");
        };
        let target = match (tenant, device) {
            ("", "") => Target::Caller,
            (_, "") => return Self::Wrong("a topic that names a tenant names a device, too"),
            ("", device) => Target::Named { tenant: None, device },
            (tenant, device) => Target::Named { tenant: Some(tenant), device },
        };
        Self::Reply { request_id, status, target, address, bag }
    }
}

impl<'a> Bag<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let mut bag = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            let is = |name: &str| key.eq_ignore_ascii_case(name);
            if is("content-type") {
                if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                    return Err("content-type is a media type such as text/plain");
                }
                bag.content_type = Some(value).filter(|value| !value.is_empty());
            } else if is("hono-ttl") {
                bag.ttl_s = Some(value.parse().map_err(|_| "hono-ttl is a whole number of seconds")?);
            } else if is("correlation-id") {
                bag.correlation_id = Some(value);
            } else if is("on-error") {
                bag.on_error = OnError::of(&value);
            }
        }
        Ok(bag)
    }
}

impl OnError {
    /// What nobody knows is the default, as with Hono: a message is not refused for it.
    fn of(text: &str) -> Self {
        match text {
            "disconnect" => Self::Disconnect,
            "ignore" => Self::Ignore,
            "skip-ack" => Self::SkipAck,
            _ => Self::Default,
        }
    }
}

/// URL-encoded text as it was meant.
fn decoded(value: &str) -> Result<Cow<'_, str>, &'static str> {
    if !value.contains(['%', '+']) {
        return Ok(Cow::Borrowed(value));
    }
    const RULE: &str = "the values behind ? are URL-encoded UTF-8";
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(RULE),
            },
            other => other,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| RULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(topic: &str) -> (Stream, Target<'_>, &str, Bag<'_>) {
        match Place::of(topic) {
            Place::Stream { stream, target, address, bag } => (stream, target, address, bag),
            other => panic!("{topic}: {other:?}"),
        }
    }

    #[test]
    fn row_telemetry_short_and_long_topics_name_the_device_itself_or_another() {
        let named = |tenant, device| Target::Named { tenant, device };
        for (topic, target) in [
            ("t", Target::Caller),
            ("telemetry", Target::Caller),
            ("t/acme/d-1", named(Some("acme"), "d-1")),
            ("telemetry/acme/d-1", named(Some("acme"), "d-1")),
            ("t//d-1", named(None, "d-1")),
            ("t//d-1/", named(None, "d-1")),
            ("t/", Target::Caller),
            ("t//", Target::Caller),
            ("telemetry///", Target::Caller),
        ] {
            assert_eq!(stream(topic), (Stream::Telemetry, target, topic, Bag::default()));
        }
    }

    #[test]
    fn row_event_short_and_long_topics_likewise() {
        for (topic, target) in [("e", Target::Caller), ("event//g", Target::Named { tenant: None, device: "g" })] {
            assert_eq!(stream(topic), (Stream::Event, target, topic, Bag::default()));
        }
    }

    #[test]
    fn row_property_bag_is_url_encoded_and_no_part_of_the_address() {
        let (_, target, address, bag) =
            stream("event/acme/d/?content-type=text%2Fplain&hono-ttl=30&correlation-id=a+b&on-error=skip-ack&x=1");
        assert_eq!((target, address), (Target::Named { tenant: Some("acme"), device: "d" }, "event/acme/d"));
        assert_eq!(bag.content_type.as_deref(), Some("text/plain"));
        assert_eq!((bag.ttl_s, bag.correlation_id.as_deref()), (Some(30), Some("a b")));
        assert_eq!(bag.on_error, OnError::SkipAck);
        for topic in ["e/?Content-Type=a/b&Hono-TTL=7", "e/?CONTENT-TYPE=a/b&hono-Ttl=7"] {
            let (_, _, _, bag) = stream(topic);
            assert_eq!((bag.content_type.as_deref(), bag.ttl_s), (Some("a/b"), Some(7)), "{topic}");
        }
        for (topic, address) in [("telemetry///?on-error=ignore", "telemetry//"), ("e///?hono-ttl=5", "e//")] {
            let Place::Stream { target, address: told, bag, .. } = Place::of(topic) else { panic!("{topic}") };
            assert_eq!((target, told), (Target::Caller, address), "{topic}");
            assert_ne!(bag, Bag::default(), "{topic}");
        }
        assert_eq!(stream("t/?on-error=perhaps").3.on_error, OnError::Default);
        for wrong in ["e/?hono-ttl=soon", "t/?content-type=%zz", "t/?content-type=%0A"] {
            assert!(matches!(Place::of(wrong), Place::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn row_response_short_and_long_topics_name_request_and_status() {
        let named = |tenant, device| Target::Named { tenant, device };
        for (topic, expected, is_typed) in [
            ("c///s/R/200", Target::Caller, false),
            ("command///res/R/200", Target::Caller, false),
            ("c//d/s/R/200", named(None, "d"), false),
            ("command/acme/d/res/R/200/?content-type=text%2Fplain", named(Some("acme"), "d"), true),
        ] {
            let Place::Reply { request_id, status, target, address, bag } = Place::of(topic) else { panic!("{topic}") };
            assert_eq!((request_id, status, target), ("R", "200", expected), "{topic}");
            assert!(topic.starts_with(address) && !address.contains('?'), "{address}");
            assert_eq!(bag.content_type.is_some(), is_typed, "{topic}");
        }
        for wrong in ["c///s/R", "c///q/R/200", "c/acme//s/R/200", "command///res/R/200/x", "c"] {
            assert!(matches!(Place::of(wrong), Place::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn reserved_words_with_anything_else_behind_them_are_wrong_and_other_topics_are_private() {
        for wrong in ["t/a", "t/a/", "t/a/b/c", "t///d", "t//d//x", "error/x", "command", "c/x", "event/a"] {
            assert!(matches!(Place::of(wrong), Place::Wrong(_)), "{wrong}");
        }
        for private in ["telemetry2", "tele/x", "", "/t", "house/t"] {
            assert_eq!(Place::of(private), Place::Private, "{private}");
        }
    }
}
