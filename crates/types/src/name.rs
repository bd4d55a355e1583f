//! Names: the tenant that scopes everything, and the topic as (tenant, kind, name).
//!
//! A topic has one rendering (`telemetry.acme`, `kv.photos.acme`, `my-topic`), which is the same in the data
//! directory, in the Kafka protocol and in messages. Inside the program the three parts stay separate.

use std::fmt;
use std::sync::Arc;

use crate::StateTopic;

/// Longest tenant id, as in NGSI's `Fiware-Service`.
pub const TENANT_MAX_CHARS: usize = 50;
/// Longest rendered topic name, as in Kafka.
pub const TOPIC_NAME_MAX_CHARS: usize = 249;

/// Names with this prefix are reserved for further topics of Millstream.
const INTERNAL_PREFIX: &str = "_millstream";
/// The beginning of the name of a topic with the state of a job.
const JOB_STATE_PREFIX: &str = "_millstream_job_state.";

/// A name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The tenant id is not legal.
    #[error("'{value}' is not a tenant id: use 1 to {TENANT_MAX_CHARS} of the characters a-z A-Z 0-9 - _ .")]
    Tenant {
        /// The value that was given.
        value: String,
    },
    /// The topic name is not legal.
    #[error("'{value}' is not a topic name: {rule}")]
    Topic {
        /// The value that was given.
        value: String,
        /// The broken rule, and the remedy.
        rule: &'static str,
    },
}

/// The owner of a set of names: Hono's tenant, NGSI's `Fiware-Service`, and the suffix of a topic's name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The tenant of a request that names none.
    pub const DEFAULT: &'static str = "default";

    /// Parses and checks a tenant id.
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

    /// The tenant id as text.
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

/// The purpose of a topic. Reserved kinds are rendered `<kind>.<tenant>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TopicKind {
    /// Telemetry messages of the devices.
    Telemetry,
    /// Event messages of the devices.
    Event,
    /// Commands that go to devices.
    Command,
    /// Responses of the devices to commands.
    CommandResponse,
    /// All changes of entities, kept by time; appended by owners only.
    Context,
    /// Entity updates from jobs and other writers.
    ContextUpdate,
    /// Messages between the MQTT clients of a tenant; appended by `connect` only.
    Mqtt,
    /// A bucket of the store; the only reserved kind with a name: `kv.<bucket>.<tenant>`.
    Kv,
    /// A topic of a user, with its plain name.
    User,
    /// State of Millstream itself, for all tenants: a [`StateTopic`].
    Internal,
}

impl TopicKind {
    pub(crate) const RESERVED: [(Self, &'static str); 8] = [
        (Self::Telemetry, "telemetry"),
        (Self::Event, "event"),
        (Self::Command, "command"),
        (Self::CommandResponse, "command_response"),
        (Self::Context, "context"),
        (Self::ContextUpdate, "context_update"),
        (Self::Mqtt, "mqtt"),
        (Self::Kv, "kv"),
    ];

    /// The first word of the rendered name, if the kind is reserved.
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
    kind: TopicKind,
    name: Arc<str>,
}

impl TopicName {
    /// The topic of a reserved kind without a name, such as `telemetry.acme`.
    ///
    /// # Panics
    /// If the kind needs a name (`Kv`, `User`, `Internal`), which is a mistake in the program.
    pub fn reserved(kind: TopicKind, tenant: &TenantId) -> Self {
        assert!(!matches!(kind, TopicKind::Kv | TopicKind::User | TopicKind::Internal), "{kind:?} needs a name");
        Self { tenant: tenant.clone(), kind, name: "".into() }
    }

    /// The topic of a bucket: `kv.<bucket>.<tenant>`, after a check of the bucket's name.
    ///
    /// # Errors
    /// [`NameError::Topic`] if the bucket's name is empty, has a dot or another illegal character, or is too long.
    pub fn bucket(bucket: &str, tenant: &TenantId) -> Result<Self, NameError> {
        if bucket.contains('.') {
            return Err(NameError::Topic { value: bucket.to_owned(), rule: "a bucket's name has no dot" });
        }
        check_chars(bucket)?;
        Self { tenant: tenant.clone(), kind: TopicKind::Kv, name: bucket.into() }.checked_length()
    }

    /// A topic of a user. Names that look like a reserved kind or an internal topic are refused.
    ///
    /// # Errors
    /// [`NameError::Topic`] if the name is reserved, is not 1 to 249 of `a-z A-Z 0-9 . _ -`, or is `.` or `..`.
    pub fn user(name: &str, tenant: &TenantId) -> Result<Self, NameError> {
        let refuse = |rule| Err(NameError::Topic { value: name.to_owned(), rule });
        check_chars(name)?;
        if is_internal(name) {
            return refuse("it is one of Millstream's own, or begins with '_millstream'; choose another name");
        }
        if reserved_by(name).is_some() {
            return refuse(
                "it begins with a reserved kind (telemetry, event, command, command_response, context, context_update, mqtt, kv) and ends with what may be a tenant; choose another first word",
            );
        }
        Self { tenant: tenant.clone(), kind: TopicKind::User, name: name.into() }.checked_length()
    }

    /// A topic of Millstream itself, for all tenants.
    ///
    /// # Panics
    /// If `name` is neither that of a [`StateTopic`] nor begins with `_millstream`, which is a mistake in the program.
    pub fn internal(name: impl Into<&'static str>) -> Self {
        let name = name.into();
        assert!(is_internal(name) && check_chars(name).is_ok(), "{name} is no internal topic's name");
        Self { tenant: TenantId::default(), kind: TopicKind::Internal, name: name.into() }
    }

    /// The topic with the state of a job. `job` names one job of all tenants.
    ///
    /// # Panics
    /// If `job` has illegal characters or is too long, which is a mistake in the program.
    pub fn job_state(job: &str) -> Self {
        let name = format!("{JOB_STATE_PREFIX}{job}");
        assert!(check_chars(&name).is_ok() && name.len() <= TOPIC_NAME_MAX_CHARS, "{name} is no topic's name");
        Self { tenant: TenantId::default(), kind: TopicKind::Internal, name: name.into() }
    }

    /// `true` for the topic with the state of a job.
    pub fn is_job_state(&self) -> bool {
        self.kind == TopicKind::Internal && self.name.starts_with(JOB_STATE_PREFIX)
    }

    /// Parses a rendered name. A plain name belongs to `tenant`, a reserved one to the tenant in the name.
    ///
    /// # Errors
    /// [`NameError`] if the name is not legal.
    pub fn parse(rendered: &str, tenant: &TenantId) -> Result<Self, NameError> {
        if is_internal(rendered) {
            check_chars(rendered)?;
            return Self { tenant: TenantId::default(), kind: TopicKind::Internal, name: rendered.into() }
                .checked_length();
        }
        match reserved_by(rendered) {
            None => Self::user(rendered, tenant),
            Some((TopicKind::Kv, bucket, owner)) => Self::bucket(bucket, &owner),
            Some((kind, _, owner)) => Ok(Self::reserved(kind, &owner)),
        }
    }

    /// The tenant that owns the topic (`default` for internal topics).
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The purpose of the topic.
    pub fn kind(&self) -> TopicKind {
        self.kind
    }

    /// The name within (tenant, kind); empty for kinds that need none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `true` for the user's topic `<word>.<tenant>`.
    pub fn is_called(&self, word: &str) -> bool {
        let tenant = self.name.strip_prefix(word).and_then(|rest| rest.strip_prefix('.'));
        !word.is_empty() && self.kind == TopicKind::User && tenant == Some(self.tenant.as_str())
    }

    fn checked_length(self) -> Result<Self, NameError> {
        let rendered = self.to_string();
        if rendered.len() > TOPIC_NAME_MAX_CHARS {
            return Err(NameError::Topic { value: rendered, rule: "a topic's whole name has at most 249 characters" });
        }
        Ok(self)
    }
}

fn is_internal(name: &str) -> bool {
    StateTopic::ALL.iter().any(|topic| topic.name() == name) || name.starts_with(INTERNAL_PREFIX)
}

/// The reserved kind, bucket (or empty) and tenant of a rendered name. `None` if the part after the first word is no
/// tenant: then the name is a user's.
fn reserved_by(name: &str) -> Option<(TopicKind, &str, TenantId)> {
    let (word, rest) = name.split_once('.')?;
    let kind = TopicKind::from_prefix(word)?;
    let (bucket, owner) = if kind == TopicKind::Kv { rest.split_once('.')? } else { ("", rest) };
    Some((kind, bucket, TenantId::new(owner).ok()?))
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
            TopicName::reserved(TopicKind::Telemetry, &acme),
            TopicName::reserved(TopicKind::CommandResponse, &acme),
            TopicName::bucket("photos", &acme).unwrap(),
            TopicName::user("orders.eu", &acme).unwrap(),
            TopicName::internal(StateTopic::Registry),
            TopicName::user("_schemas", &acme).unwrap(),
            TopicName::user("_confluent-ksql-default__command_topic", &acme).unwrap(),
            TopicName::user("kv.photos", &acme).unwrap(),
            TopicName::user(&format!("event.{}", "x".repeat(51)), &acme).unwrap(),
        ] {
            assert_eq!(TopicName::parse(&topic.to_string(), &acme).unwrap(), topic);
        }
        assert_eq!(TopicName::bucket("photos", &acme).unwrap().to_string(), "kv.photos.ac.me");
    }

    #[test]
    fn illegal_names_are_refused_with_the_value_and_the_rule() {
        let tenant = TenantId::default();
        for name in ["", ".", "..", "a b", "ä", "_registry", "_millstream-x", "telemetry.x", "kv.a.b", &"x".repeat(250)]
        {
            let refusal = TopicName::user(name, &tenant).unwrap_err().to_string();
            assert!(refusal.contains(name) && refusal.contains(':'), "{name}: {refusal}");
        }
        for tenant in ["", "a/b", "é", &"t".repeat(51)] {
            assert!(TenantId::new(tenant).unwrap_err().to_string().contains(tenant));
        }
        assert!(TopicName::bucket("a.b", &tenant).is_err());
        assert!(TopicName::parse("kv..x", &tenant).is_err());
    }

    #[test]
    fn a_users_topic_of_a_word_ends_with_its_own_tenant() {
        let acme = TenantId::new("ac.me").unwrap();
        for (name, is_called) in [
            ("queries.ac.me", true),
            ("queries.other", false),
            ("queries", false),
            ("queries.", false),
            ("queriesac.me", false),
            ("telemetry.ac.me", false),
        ] {
            assert_eq!(TopicName::parse(name, &acme).unwrap().is_called("queries"), is_called, "{name}");
        }
        assert!(!TopicName::user(".ac.me", &acme).unwrap().is_called(""));
        assert!(!TopicName::reserved(TopicKind::Telemetry, &acme).is_called("telemetry"));
    }
}
