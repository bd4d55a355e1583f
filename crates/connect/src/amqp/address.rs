//! The addresses of the streams that applications receive.

use millstream_types::{TenantId, TopicKind, TopicName};

use super::reply_address::REPLY_MAX_BYTES;

/// A stream of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StreamAddress {
    pub(super) tenant: TenantId,
    pub(super) kind: TopicKind,
    /// The receiver of responses; empty for other streams.
    pub(super) reply: Box<str>,
}

impl StreamAddress {
    /// Parses `telemetry/TENANT`, `event/TENANT` or `command_response/TENANT/REPLY`; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        let (kind, tenant, reply) = match kind {
            "telemetry" => (TopicKind::Telemetry, rest, ""),
            "event" => (TopicKind::Event, rest, ""),
            "command_response" => {
                let (tenant, reply) = rest.split_once('/').filter(|(_, reply)| is_reply(reply))?;
                (TopicKind::CommandResponse, tenant, reply)
            }
            _ => return None,
        };
        Some(Self { tenant: TenantId::new(tenant).ok()?, kind, reply: reply.into() })
    }

    /// The topic of its records.
    pub(super) fn topic(&self) -> TopicName {
        TopicName::reserved(self.kind, &self.tenant)
    }
}

fn is_reply(text: &str) -> bool {
    !text.is_empty() && text.len() < REPLY_MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_kind_and_a_tenant() {
        let parsed = StreamAddress::parse("telemetry/a.b-c").unwrap();
        assert_eq!((parsed.tenant.as_str(), parsed.topic().to_string()), ("a.b-c", "telemetry.a.b-c".to_owned()));
        assert_eq!(StreamAddress::parse("event/a").unwrap().topic().to_string(), "event.a");
        let response = StreamAddress::parse("command_response/a/b/c").unwrap();
        assert_eq!((response.topic().to_string(), &*response.reply), ("command_response.a".to_owned(), "b/c"));
        let long = format!("command_response/a/{}", "x".repeat(REPLY_MAX_BYTES));
        for wrong in [
            "command_response/a",
            "command_response/a/",
            &long,
            "",
            "telemetry",
            "telemetry/",
            "telemetry/a/b",
            "other/a",
            "/a",
            "telemetry.a",
        ] {
            assert_eq!(StreamAddress::parse(wrong), None, "{wrong}");
        }
    }
}
