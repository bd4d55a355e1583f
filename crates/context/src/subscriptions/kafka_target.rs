//! Targets in Kafka: the brokers, the topic, and the parts of a record.

use millstream_kafka_wire::Login;
use millstream_outgoing::Address;
use millstream_types::LoginMechanism;
use serde_json::{Map, Value};

use super::payload_template::PayloadTemplate;
use super::target_members::{check_host, host_and_port, pairs, required, template};
use super::template::{MacroTemplate, without_macros};
use crate::model::member::Member;
use crate::refusal::Refusal;

/// Longest name of a topic (Kafka's `org.apache.kafka.common.internals.Topic`).
const TOPIC_MAX_CHARS: usize = 249;
const MECHANISMS: [LoginMechanism; 3] =
    [LoginMechanism::Plain, LoginMechanism::ScramSha256, LoginMechanism::ScramSha512];
/// The members of a target that a change of it may leave out.
const KEPT: [&str; 2] = ["key", "headers"];

#[derive(Debug)]
pub(crate) struct Kafka {
    pub(crate) cluster: NotificationCluster,
    pub(crate) topic: MacroTemplate,
    /// `None` is a record without a key.
    pub(crate) key: Option<MacroTemplate>,
    pub(crate) headers: Vec<(MacroTemplate, MacroTemplate)>,
    pub(crate) payload: PayloadTemplate,
}

/// Brokers of one cluster with a login.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NotificationCluster {
    /// Those that are asked first; at least one.
    pub(crate) brokers: Vec<Address>,
    pub(crate) login: Option<Login>,
}

impl NotificationCluster {
    /// The brokers as people name them.
    pub(crate) fn name(&self) -> String {
        let names = self.brokers.iter().map(|broker| format!("{}:{}", broker.host, broker.port));
        names.collect::<Vec<_>>().join(",")
    }
}

impl Kafka {
    pub(crate) fn read(given: &mut Member, is_custom: bool) -> Result<Self, Refusal> {
        let url = required(given, "url")?;
        let text = required(given, "topic")?;
        let topic = template("topic", &text, is_custom)?;
        let outside = if is_custom { without_macros(&text) } else { text.clone() };
        if text.is_empty() || outside.contains(['+', '#', '/']) {
            return Err(given.wrong("topic", &text, "a topic of Kafka has no +, no # and no /; correct it"));
        }
        let key = match given.take("key") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(template("key", &text, is_custom)?),
            Some(other) => return Err(given.wrong("key", &other.to_string(), "it must be a text or null; correct it")),
        };
        let login = login(given)?;
        let is_tls = match protocol(given, login.is_some())? {
            Protocol::Tls => true,
            Protocol::Plain => false,
        };
        let cluster = NotificationCluster { brokers: brokers(&url, is_tls)?, login };
        let (headers, payload) = match is_custom {
            true => (pairs(given, "headers", |_| true)?, PayloadTemplate::read(given)?),
            false => (Vec::new(), PayloadTemplate::Plain),
        };
        Ok(Self { cluster, topic, key, headers, payload })
    }

    /// The topic, if it has no macros.
    pub(crate) fn fixed_topic(&self) -> Option<&str> {
        (!self.topic.has_macros()).then(|| self.topic.raw())
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.cluster.brokers.iter().try_for_each(|broker| check_host(&broker.host))?;
        match self.fixed_topic().and_then(why_no_topic) {
            None => Ok(()),
            Some(why) => Err(Refusal::bad(format!("topic: {why}; correct it"))),
        }
    }
}

/// The reason why a topic's name is invalid.
pub(crate) fn why_no_topic(topic: &str) -> Option<String> {
    let is_legal = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    let is_name = (1..=TOPIC_MAX_CHARS).contains(&topic.len()) && topic.bytes().all(is_legal);
    (!is_name || [".", ".."].contains(&topic)).then(|| {
        format!("'{topic}' is no topic of Kafka: its name has 1 to {TOPIC_MAX_CHARS} letters, digits, '.', '_' and '-'")
    })
}

fn login(given: &mut Member) -> Result<Option<Login>, Refusal> {
    let (user, password) = match (given.text("user")?, given.text("passwd")?) {
        (None, None) => return Ok(None),
        (Some(user), Some(password)) => (user, password),
        _ => return Err(given.wrong("user and passwd", "one of them", "they come together; add the other")),
    };
    let rule = "with a login it is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; name one";
    let Some(name) = given.text("saslMechanism")? else {
        return Err(given.wrong("saslMechanism", "missing", rule));
    };
    let mechanism = MECHANISMS.into_iter().find(|mechanism| mechanism.as_str() == name);
    let mechanism = mechanism.ok_or_else(|| given.wrong("saslMechanism", &name, rule))?;
    Ok(Some(Login { mechanism, user, password }))
}

enum Protocol {
    Plain,
    Tls,
}

fn protocol(given: &mut Member, has_login: bool) -> Result<Protocol, Refusal> {
    match (given.text("securityProtocol")?.as_deref(), has_login) {
        (None | Some("SASL_SSL"), true) | (Some("SSL"), false) => Ok(Protocol::Tls),
        (None | Some("PLAINTEXT"), false) | (Some("SASL_PLAINTEXT"), true) => Ok(Protocol::Plain),
        (Some(other), true) => {
            Err(given.wrong("securityProtocol", other, "with a login it is SASL_SSL or SASL_PLAINTEXT; name one"))
        }
        (Some(other), false) => {
            let rule = "without a login it is SSL or PLAINTEXT; name one, or add user, passwd and saslMechanism";
            Err(given.wrong("securityProtocol", other, rule))
        }
    }
}

fn brokers(url: &str, is_tls: bool) -> Result<Vec<Address>, Refusal> {
    let address = |text: &str| {
        let (host, port) = host_and_port(text)?;
        Some(Address { host, port, is_tls })
    };
    let brokers = url.strip_prefix("kafka://").and_then(|rest| rest.split(',').map(address).collect());
    brokers.ok_or_else(|| {
        Refusal::bad(format!("url '{url}': it must be kafka://host:port[,host:port] without a path; correct it"))
    })
}

/// Takes what a change of `before` leaves out of a target over from it: Orion keeps `key` and `headers` of a target of the
/// same kind, and nothing else.
pub(crate) fn keep(before: &Map<String, Value>, change: &mut Map<String, Value>) {
    let before = before.get("notification").and_then(Value::as_object);
    let after = change.get_mut("notification").and_then(Value::as_object_mut);
    let (Some(before), Some(after)) = (before, after) else { return };
    for kind in ["kafka", "kafkaCustom"] {
        let (Some(before), Some(after)) = (before.get(kind), after.get_mut(kind).and_then(Value::as_object_mut)) else {
            continue;
        };
        for name in KEPT {
            if let (Some(kept), None) = (before.get(name), after.get(name)) {
                after.insert(name.to_owned(), kept.clone());
            }
        }
    }
}

/// Fills in what is left out of a target, and hides its password.
pub(crate) fn show(target: &mut Map<String, Value>) {
    if let Some(password) = target.get_mut("passwd") {
        *password = Value::from("*****");
        target.entry("securityProtocol").or_insert_with(|| Value::from("SASL_SSL"));
    }
}
