//! The topics that a document names: short names, and the access of the caller who submits it.

use millstream_types::{NameError, TenantId, TopicKind, TopicName};

use super::model::Role;

/// The kinds of topics that may be named without their tenant.
const SHORT: [(&str, TopicKind); 5] = [
    ("telemetry", TopicKind::Telemetry),
    ("event", TopicKind::Event),
    ("command_response", TopicKind::CommandResponse),
    ("context", TopicKind::Context),
    ("context_update", TopicKind::ContextUpdate),
];

/// The access to topics of the caller who submits a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicAccess {
    /// The tenant of the job.
    pub tenant: TenantId,
    /// The caller has the role reader.
    pub may_read: bool,
    /// The caller has the role writer.
    pub may_write: bool,
}

/// The topic that a text of a job of `tenant` names.
pub(crate) fn topic_named(text: &str, tenant: &TenantId) -> Result<TopicName, NameError> {
    match SHORT.iter().find(|(word, _)| *word == text) {
        Some((_, kind)) => Ok(TopicName::reserved(*kind, tenant)),
        None => TopicName::parse(text, tenant),
    }
}

/// The reason why no job may write into the topic.
pub(super) fn unwritable(text: &str, tenant: &TenantId) -> Option<String> {
    let topic = topic_named(text, tenant).ok()?;
    matches!(topic.kind(), TopicKind::Internal | TopicKind::Context | TopicKind::Mqtt | TopicKind::Kv).then(|| {
        format!("'{text}' is written by Millstream alone; write to a topic of your own, or to context_update.<tenant>")
    })
}

impl TopicAccess {
    /// The reason why a node of the role may not have the topic.
    pub(super) fn fault(&self, text: &str, role: Role) -> Option<String> {
        let name = topic_named(text, &self.tenant).ok()?;
        if name.kind() == TopicKind::Internal {
            return Some(format!(
                "topic '{name}' is Millstream's own; jobs do not read or write it, name one of your own"
            ));
        }
        if name.tenant() != &self.tenant {
            let (other, tenant) = (name.tenant(), &self.tenant);
            return Some(format!(
                "topic '{name}' is of tenant '{other}', and the job of '{tenant}'; submit it in that tenant, or name a topic of '{tenant}'"
            ));
        }
        let (is_allowed, verb, needed) = match role {
            Role::Sink => (self.may_write, "written", "writer"),
            Role::Source | Role::Transform => (self.may_read, "read", "reader"),
        };
        (!is_allowed).then(|| {
            format!("topic '{name}' is {verb} by callers with the role {needed}; submit with a login that has it")
        })
    }
}
