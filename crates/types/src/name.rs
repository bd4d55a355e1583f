//! Names: the tenant that scopes everything, and the topic as (tenant, kind, name).
//!
//! A topic has one rendering (`telemetry.acme`, `kv.photos.acme`, `my-topic`) that is the same in the data directory,
//! on the Kafka protocol and in messages to people; inside the program the three parts stay apart.

use std::fmt;
use std::sync::Arc;

/// Longest tenant id: what NGSI allows in `Fiware-Service`.
pub const TENANT_MAX_CHARS: usize = 50;
/// Longest rendered topic name: Kafka's limit.
pub const TOPIC_NAME_MAX_CHARS: usize = 249;

/// A name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Not a tenant id.
    #[error("'{value}' is not a tenant id: use 1 to {TENANT_MAX_CHARS} of the characters a-z A-Z 0-9 - _ .")]
    Tenant {
        /// What was given.
        value: String,
    },
    /// Not a topic name.
    #[error("'{value}' is not a topic name: {rule}")]
    Topic {
        /// What was given.
        value: String,
        /// The rule that it breaks, and the remedy.
        rule: &'static str,
    },
}

/// The owner of a set of names. Hono's tenant, NGSI's `Fiware-Service` and the end of a topic's name are the same thing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The tenant of a request that names none.
    pub const DEFAULT: &'static str = "default";

    /// Checks and takes a tenant id.
    ///
    /// # Errors
    /// [`NameError::Tenant`] unless it is 1 to 50 of the characters `a-z A-Z 0-9 - _ .`.
    pub fn new(value: &str) -> Result<Self, NameError> {
        let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        if value.is_empty() || value.len() > TENANT_MAX_CHARS || !value.bytes().all(legal) {
            return Err(NameError::Tenant { value: value.to_owned() });
        }
        Ok(Self(value.into()))
    }

    /// The tenant as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantId({})", self.0)
    }
}

/// What a topic is for; reserved kinds are rendered `<kind>.<tenant>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Measurements of devices.
    Telemetry,
    /// Events of devices.
    Event,
    /// Commands to devices.
    Command,
    /// Answers of devices to commands.
    CommandResponse,
    /// Every change of an entity, kept by time; appended by owners only.
    Context,
    /// Updates for entities from jobs and other writers.
    ContextUpdate,
    /// Messages between the MQTT clients of a tenant; appended by `connect` only.
    Mqtt,
    /// A bucket of the store; the only reserved kind with a name: `kv.<bucket>.<tenant>`.
    Kv,
    /// A user's own topic, with its plain name.
    User,
    /// Millstream's own state, of all tenants; the name begins with `_`.
    Internal,
}

impl Kind {
    const RESERVED: [(Self, &'static str); 8] = [
        (Self::Telemetry, "telemetry"),
        (Self::Event, "event"),
        (Self::Command, "command"),
        (Self::CommandResponse, "command_response"),
        (Self::Context, "context"),
        (Self::ContextUpdate, "context_update"),
        (Self::Mqtt, "mqtt"),
        (Self::Kv, "kv"),
    ];

    /// The word in front of the tenant, if the kind is reserved.
    pub fn prefix(self) -> Option<&'static str> {
        Self::RESERVED.iter().find(|(kind, _)| *kind == self).map(|(_, word)| *word)
    }

    fn from_prefix(word: &str) -> Option<Self> {
        Self::RESERVED.iter().find(|(_, prefix)| *prefix == word).map(|(kind, _)| *kind)
    }
}

/// A topic: (tenant, kind, name). Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName {
    tenant: TenantId,
    kind: Kind,
    name: Arc<str>,
}

impl TopicName {
    /// A topic of a reserved kind that has no name of its own, such as `telemetry.acme`.
    ///
    /// # Panics
    /// If the kind needs a name (`Kv`, `User`, `Internal`): a mistake of the caller, not of a user.
    pub fn reserved(kind: Kind, tenant: &TenantId) -> Self {
        assert!(!matches!(kind, Kind::Kv | Kind::User | Kind::Internal), "{kind:?} needs a name");
        Self { tenant: tenant.clone(), kind, name: "".into() }
    }

    /// The topic of a bucket: `kv.<bucket>.<tenant>`.
    ///
    /// # Errors
    /// [`NameError::Topic`] if the bucket's name is empty, has a dot or another illegal character, or is too long.
    pub fn bucket(bucket: &str, tenant: &TenantId) -> Result<Self, NameError> {
        if bucket.contains('.') {
            return Err(NameError::Topic { value: bucket.to_owned(), rule: "a bucket's name has no dot" });
        }
        check_chars(bucket)?;
        Self { tenant: tenant.clone(), kind: Kind::Kv, name: bucket.into() }.checked_length()
    }

    /// A user's own topic. Names that read as a reserved kind or as internal are refused.
    ///
    /// # Errors
    /// [`NameError::Topic`] as above, or if the name is not 1 to 249 of `a-z A-Z 0-9 . _ -`, or is `.` or `..`.
    pub fn user(name: &str, tenant: &TenantId) -> Result<Self, NameError> {
        let refuse = |rule| Err(NameError::Topic { value: name.to_owned(), rule });
        check_chars(name)?;
        if name.starts_with('_') {
            return refuse("names that begin with '_' are internal; choose another first character");
        }
        if name.split_once('.').is_some_and(|(word, _)| Kind::from_prefix(word).is_some()) {
            return refuse(
                "it begins with a reserved kind (telemetry, event, command, command_response, context, context_update, mqtt, kv); choose another first word",
            );
        }
        Self { tenant: tenant.clone(), kind: Kind::User, name: name.into() }.checked_length()
    }

    /// A topic of Millstream's own, for all tenants.
    ///
    /// # Panics
    /// If `name` does not begin with `_` or is no legal topic name: a mistake in the program.
    pub fn internal(name: &'static str) -> Self {
        assert!(name.starts_with('_') && check_chars(name).is_ok(), "{name} is no internal topic's name");
        Self { tenant: TenantId::default(), kind: Kind::Internal, name: name.into() }
    }

    /// Reads a rendered name back. A plain name belongs to `tenant`, a reserved one to the tenant that it names.
    ///
    /// # Errors
    /// [`NameError`] if it is no legal name.
    pub fn parse(rendered: &str, tenant: &TenantId) -> Result<Self, NameError> {
        if rendered.starts_with('_') {
            check_chars(rendered)?;
            return Self { tenant: TenantId::default(), kind: Kind::Internal, name: rendered.into() }.checked_length();
        }
        let Some((kind, rest)) =
            rendered.split_once('.').and_then(|(word, rest)| Some((Kind::from_prefix(word)?, rest)))
        else {
            return Self::user(rendered, tenant);
        };
        if kind != Kind::Kv {
            return Ok(Self::reserved(kind, &TenantId::new(rest)?));
        }
        let Some((bucket, owner)) = rest.split_once('.') else {
            return Err(NameError::Topic {
                value: rendered.to_owned(),
                rule: "a bucket's topic is kv.<bucket>.<tenant>",
            });
        };
        Self::bucket(bucket, &TenantId::new(owner)?)
    }

    /// The tenant that owns the topic (`default` for internal topics).
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// What the topic is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name within (tenant, kind); empty for kinds that need none.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn checked_length(self) -> Result<Self, NameError> {
        let rendered = self.to_string();
        if rendered.len() > TOPIC_NAME_MAX_CHARS {
            return Err(NameError::Topic { value: rendered, rule: "a topic's whole name has at most 249 characters" });
        }
        Ok(self)
    }
}

fn check_chars(name: &str) -> Result<(), NameError> {
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    if name.is_empty() || name == "." || name == ".." || !name.bytes().all(legal) {
        return Err(NameError::Topic {
            value: name.to_owned(),
            rule: "use 1 to 249 of the characters a-z A-Z 0-9 . _ -, and not '.' or '..' alone",
        });
    }
    Ok(())
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.prefix(), self.name.is_empty()) {
            (Some(word), true) => write!(f, "{word}.{}", self.tenant),
            (Some(word), false) => write!(f, "{word}.{}.{}", self.name, self.tenant),
            (None, _) => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicName({self} of {})", self.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_names_read_back_as_the_same_topic() {
        let acme = TenantId::new("ac.me").unwrap();
        for topic in [
            TopicName::reserved(Kind::Telemetry, &acme),
            TopicName::reserved(Kind::CommandResponse, &acme),
            TopicName::bucket("photos", &acme).unwrap(),
            TopicName::user("orders.eu", &acme).unwrap(),
            TopicName::internal("_registry"),
        ] {
            assert_eq!(TopicName::parse(&topic.to_string(), &acme).unwrap(), topic);
        }
        assert_eq!(TopicName::bucket("photos", &acme).unwrap().to_string(), "kv.photos.ac.me");
    }

    #[test]
    fn illegal_names_are_refused_with_the_value_and_the_rule() {
        let tenant = TenantId::default();
        for name in ["", ".", "..", "a b", "ä", "_mine", "telemetry.x", "kv.a.b", &"x".repeat(250)] {
            let refusal = TopicName::user(name, &tenant).unwrap_err().to_string();
            assert!(refusal.contains(name) && refusal.contains(':'), "{name}: {refusal}");
        }
        for tenant in ["", "a/b", "é", &"t".repeat(51)] {
            assert!(TenantId::new(tenant).unwrap_err().to_string().contains(tenant));
        }
        assert!(TopicName::bucket("a.b", &tenant).is_err());
        assert!(TopicName::parse("kv.x", &tenant).is_err());
    }
}
