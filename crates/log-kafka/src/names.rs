//! The name of a topic in the cluster, one to one.
//!
//! It is the rendered name, except that a user's topic of another tenant than `default` is `_tenant.<tenant>.<name>`: in
//! one cluster two tenants may have topics of the same name. In the tenant, `_` is written `__`, and `.` is `_-`. In front of all
//! stands the prefix of the installation, if it has one.

use millstream_log::Error;
use millstream_types::{TOPIC_NAME_MAX_CHARS, TenantId, TopicKind, TopicName};

const OF_TENANT: &str = "_tenant.";

/// The names of this installation in the cluster.
#[derive(Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The transactional id of a writer.
    pub(crate) fn transactional_id(&self, writer: &str) -> String {
        format!("{}millstream.{writer}", self.prefix)
    }

    /// The name of one of this engine's own topics.
    pub(crate) fn internal(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The name of `topic` in the cluster.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if that is too long, or means the topic of a tenant.
    pub(crate) fn in_kafka(&self, topic: &TopicName) -> Result<String, Error> {
        let rendered = topic.to_string();
        let refuse = |value, rule| Err(Error::InvalidConfig { topic: topic.clone(), setting: "name", value, rule });
        if topic.kind() == TopicKind::User && *topic.tenant() == TenantId::default() && rendered.starts_with(OF_TENANT)
        {
            return refuse(rendered, "names in Kafka that begin with '_tenant.' are those of other tenants' topics");
        }
        let name = match topic.kind() == TopicKind::User && *topic.tenant() != TenantId::default() {
            false => format!("{}{rendered}", self.prefix),
            true => {
                let tenant = topic.tenant().as_str().replace('_', "__").replace('.', "_-");
                format!("{}{OF_TENANT}{tenant}.{rendered}", self.prefix)
            }
        };
        match name.len() <= TOPIC_NAME_MAX_CHARS {
            true => Ok(name),
            false => refuse(name, "with prefix and tenant it has at most 249 characters in Kafka; take a shorter one"),
        }
    }

    /// The topic of that name in the cluster; `None` if it cannot be one of ours.
    pub(crate) fn topic(&self, name: &str) -> Option<TopicName> {
        let own = name.strip_prefix(&self.prefix)?;
        let Some((tenant, rendered)) = own.strip_prefix(OF_TENANT).and_then(|rest| rest.split_once('.')) else {
            return TopicName::parse(own, &TenantId::default()).ok();
        };
        let topic = TopicName::user(rendered, &TenantId::new(&unescaped(tenant)?).ok()?).ok()?;
        // An escape that is not needed would give one topic two names.
        (self.in_kafka(&topic).ok()? == name).then_some(topic)
    }
}

fn unescaped(tenant: &str) -> Option<String> {
    let mut plain = String::new();
    let mut chars = tenant.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '_' => match chars.next()? {
                '_' => '_',
                '-' => '.',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_one_name_in_the_cluster_and_the_name_one_topic() {
        let (default, dotted) = (TenantId::default(), TenantId::new("a.b_c-").unwrap());
        let other = TenantId::new("a").unwrap();
        let cases = [
            (TopicName::reserved(TopicKind::Telemetry, &dotted), "telemetry.a.b_c-"),
            (TopicName::bucket("photos", &other).unwrap(), "kv.photos.a"),
            (TopicName::user("orders.eu", &default).unwrap(), "orders.eu"),
            (TopicName::user("orders.eu", &other).unwrap(), "_tenant.a.orders.eu"),
            (TopicName::user("orders", &dotted).unwrap(), "_tenant.a_-b__c-.orders"),
        ];
        for (topic, name) in cases {
            for prefix in ["", "plant-7."] {
                let (names, name) = (Names::new(prefix), format!("{prefix}{name}"));
                assert_eq!(names.in_kafka(&topic).unwrap(), name);
                assert_eq!(names.topic(&name), Some(topic.clone()));
            }
        }
    }

    #[test]
    fn names_that_mean_no_topic_are_left_alone() {
        let names = Names::new("");
        for name in ["_tenant.a_.orders", "_tenant.a_x.orders", "_tenant.default.orders", "_tenant..orders", "kv..x"] {
            assert_eq!(names.topic(name), None, "{name}");
        }
        for name in ["orders", "plant-70.orders", "_tenant.a.orders"] {
            assert_eq!(Names::new("plant-7.").topic(name), None, "{name} is another installation's");
        }
        let taken = TopicName::user("_tenant.a.orders", &TenantId::default()).unwrap();
        assert!(names.in_kafka(&taken).unwrap_err().to_string().contains("_tenant.a.orders"));
        let long = TopicName::user(&"x".repeat(245), &TenantId::new("acme").unwrap()).unwrap();
        assert!(names.in_kafka(&long).is_err());
    }
}
