//! Topics: Hono's own, which begin with a few reserved words, and all others, which are the tenant's private space.

use std::borrow::Cow;

use crate::sender::DeviceAddress;
use crate::stream::Stream;
use crate::topic_filter::is_reserved;

/// The kind of a topic that a client publishes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TopicKind<'a> {
    /// A topic of telemetry or events.
    Stream { stream: Stream, target: DeviceAddress<'a>, address: &'a str, bag: PropertyBag<'a> },
    /// An answer to a command. Request id and status are as they were sent. One that names its tenant only has an empty
    /// device, which stands for the client itself.
    Reply { request_id: &'a str, status: &'a str, target: DeviceAddress<'a>, address: &'a str, bag: PropertyBag<'a> },
    /// A reserved word with something behind it that nobody may publish to; says what is wrong with it.
    Wrong(&'static str),
    /// A topic of the tenant's private space.
    Broker,
}

/// The reaction to a refused message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnError {
    /// Told on the error topic, if the client listens there; else the connection ends.
    #[default]
    Default,
    Disconnect,
    /// The message is acknowledged all the same.
    Ignore,
    SkipAck,
}

/// Properties that are part of the topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PropertyBag<'a> {
    pub(super) content_type: Option<Cow<'a, str>>,
    pub(super) ttl_s: Option<u64>,
    pub(super) correlation_id: Option<Cow<'a, str>>,
    pub(super) on_error: OnError,
}

/// True if a filter is about commands.
pub(super) fn is_about_commands(filter: &str) -> bool {
    matches!(filter.split('/').next(), Some("c" | "command"))
}

impl<'a> TopicKind<'a> {
    /// The device that it names.
    pub(super) fn target(&self) -> Option<DeviceAddress<'a>> {
        match self {
            Self::Stream { target, .. } | Self::Reply { target, .. } => Some(*target),
            Self::Wrong(_) | Self::Broker => None,
        }
    }

    pub(super) fn of(topic: &'a str) -> Self {
        // Most devices publish to these topics.
        let own = |stream| Self::Stream {
            stream,
            target: DeviceAddress::Caller,
            address: topic,
            bag: PropertyBag::default(),
        };
        match topic {
            "t" | "telemetry" => return own(Stream::Telemetry),
            "e" | "event" => return own(Stream::Event),
            _ if !is_reserved(topic) => return Self::Broker,
            _ => {}
        }
        let (address, bag) = match topic.rfind("/?") {
            Some(at) => match PropertyBag::parse(&topic[at + 2..]) {
                Ok(bag) => (&topic[..at], bag),
                Err(rule) => return Self::Wrong(rule),
            },
            None => (topic, PropertyBag::default()),
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
            (None, ..) => DeviceAddress::Caller,
            (Some(""), Some(device), None) => DeviceAddress::Named { tenant: None, device },
            (Some(tenant), Some(device), None) if !device.is_empty() => {
                DeviceAddress::Named { tenant: Some(tenant), device }
            }
            _ => return Self::Wrong("use the word alone, WORD/TENANT/DEVICE, or WORD//DEVICE"),
        };
        Self::Stream { stream, target, address, bag }
    }

    fn reply(address: &'a str, bag: PropertyBag<'a>) -> Self {
        let levels: Vec<&str> = address.splitn(7, '/').collect();
        let [_, tenant, device, "s" | "res", request_id, status] = levels[..] else {
            return Self::Wrong("a command is answered on c///s/REQUEST-ID/STATUS, or c//DEVICE/s/REQUEST-ID/STATUS");
        };
        let target = match (tenant, device) {
            ("", "") => DeviceAddress::Caller,
            ("", device) => DeviceAddress::Named { tenant: None, device },
            (tenant, device) => DeviceAddress::Named { tenant: Some(tenant), device },
        };
        Self::Reply { request_id, status, target, address, bag }
    }
}

impl<'a> PropertyBag<'a> {
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
    /// An unknown value means the default, as with Hono: a message is not refused for it.
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

    fn stream(topic: &str) -> (Stream, DeviceAddress<'_>, &str, PropertyBag<'_>) {
        match TopicKind::of(topic) {
            TopicKind::Stream { stream, target, address, bag } => (stream, target, address, bag),
            other => panic!("{topic}: {other:?}"),
        }
    }

    #[test]
    fn row_telemetry_short_and_long_topics_name_the_device_itself_or_another() {
        let named = |tenant, device| DeviceAddress::Named { tenant, device };
        for (topic, target) in [
            ("t", DeviceAddress::Caller),
            ("telemetry", DeviceAddress::Caller),
            ("t/acme/d-1", named(Some("acme"), "d-1")),
            ("telemetry/acme/d-1", named(Some("acme"), "d-1")),
            ("t//d-1", named(None, "d-1")),
            ("t//d-1/", named(None, "d-1")),
            ("t/", DeviceAddress::Caller),
            ("t//", DeviceAddress::Caller),
            ("telemetry///", DeviceAddress::Caller),
        ] {
            assert_eq!(stream(topic), (Stream::Telemetry, target, topic, PropertyBag::default()));
        }
    }

    #[test]
    fn row_event_short_and_long_topics_likewise() {
        for (topic, target) in
            [("e", DeviceAddress::Caller), ("event//g", DeviceAddress::Named { tenant: None, device: "g" })]
        {
            assert_eq!(stream(topic), (Stream::Event, target, topic, PropertyBag::default()));
        }
    }

    #[test]
    fn row_property_bag_is_url_encoded_and_no_part_of_the_address() {
        let (_, target, address, bag) =
            stream("event/acme/d/?content-type=text%2Fplain&hono-ttl=30&correlation-id=a+b&on-error=skip-ack&x=1");
        assert_eq!((target, address), (DeviceAddress::Named { tenant: Some("acme"), device: "d" }, "event/acme/d"));
        assert_eq!(bag.content_type.as_deref(), Some("text/plain"));
        assert_eq!((bag.ttl_s, bag.correlation_id.as_deref()), (Some(30), Some("a b")));
        assert_eq!(bag.on_error, OnError::SkipAck);
        for topic in ["e/?Content-Type=a/b&Hono-TTL=7", "e/?CONTENT-TYPE=a/b&hono-Ttl=7"] {
            let (_, _, _, bag) = stream(topic);
            assert_eq!((bag.content_type.as_deref(), bag.ttl_s), (Some("a/b"), Some(7)), "{topic}");
        }
        for (topic, address) in [("telemetry///?on-error=ignore", "telemetry//"), ("e///?hono-ttl=5", "e//")] {
            let TopicKind::Stream { target, address: told, bag, .. } = TopicKind::of(topic) else { panic!("{topic}") };
            assert_eq!((target, told), (DeviceAddress::Caller, address), "{topic}");
            assert_ne!(bag, PropertyBag::default(), "{topic}");
        }
        assert_eq!(stream("t/?on-error=perhaps").3.on_error, OnError::Default);
        for wrong in ["e/?hono-ttl=soon", "t/?content-type=%zz", "t/?content-type=%0A"] {
            assert!(matches!(TopicKind::of(wrong), TopicKind::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn row_response_short_and_long_topics_name_request_and_status() {
        let named = |tenant, device| DeviceAddress::Named { tenant, device };
        for (topic, expected, is_typed) in [
            ("c///s/R/200", DeviceAddress::Caller, false),
            ("command///res/R/200", DeviceAddress::Caller, false),
            ("c//d/s/R/200", named(None, "d"), false),
            ("c/acme//s/R/200", named(Some("acme"), ""), false),
            ("command/acme/d/res/R/200/?content-type=text%2Fplain", named(Some("acme"), "d"), true),
        ] {
            let TopicKind::Reply { request_id, status, target, address, bag } = TopicKind::of(topic) else {
                panic!("{topic}")
            };
            assert_eq!((request_id, status, target), ("R", "200", expected), "{topic}");
            assert!(topic.starts_with(address) && !address.contains('?'), "{address}");
            assert_eq!(bag.content_type.is_some(), is_typed, "{topic}");
        }
        for wrong in ["c///s/R", "c///q/R/200", "command///res/R/200/x", "c"] {
            assert!(matches!(TopicKind::of(wrong), TopicKind::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn reserved_words_with_anything_else_behind_them_are_wrong_and_other_topics_are_private() {
        for wrong in ["t/a", "t/a/", "t/a/b/c", "t///d", "t//d//x", "error/x", "command", "c/x", "event/a"] {
            assert!(matches!(TopicKind::of(wrong), TopicKind::Wrong(_)), "{wrong}");
        }
        for private in ["telemetry2", "tele/x", "", "/t", "house/t"] {
            assert_eq!(TopicKind::of(private), TopicKind::Broker, "{private}");
        }
    }
}
