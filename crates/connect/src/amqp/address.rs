//! The addresses of the streams that applications receive.

use millstream_types::{TenantId, TopicKind, TopicName};

/// A stream of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StreamAddress {
    pub(super) tenant: TenantId,
    pub(super) kind: TopicKind,
}

impl StreamAddress {
    /// Parses `telemetry/TENANT`; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, tenant) = text.split_once('/')?;
        let kind = match kind {
            "telemetry" => TopicKind::Telemetry,
            _ => return None,
        };
        Some(Self { tenant: TenantId::new(tenant).ok()?, kind })
    }

    /// The topic of its records.
    pub(super) fn topic(&self) -> TopicName {
        TopicName::reserved(self.kind, &self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_kind_and_a_tenant() {
        let parsed = StreamAddress::parse("telemetry/a.b-c").unwrap();
        assert_eq!((parsed.tenant.as_str(), parsed.topic().to_string()), ("a.b-c", "telemetry.a.b-c".to_owned()));
        for wrong in ["", "telemetry", "telemetry/", "telemetry/a/b", "other/a", "/a", "telemetry.a"] {
            assert_eq!(StreamAddress::parse(wrong), None, "{wrong}");
        }
    }
}
