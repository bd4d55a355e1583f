//! Targets of notifications and their payloads.

use axum::http::{HeaderName, Method};
use millstream_outgoing::{Address, HttpUrl, is_header_text};

use super::kafka_target::Kafka;
use super::payload_template::PayloadTemplate;
use super::target_members::{check_host, host_and_port, pairs, required, template};
use super::template::MacroTemplate;
use crate::ignored::IgnoredMembers;
use crate::model::member::Member;
use crate::refusal::Refusal;

/// Members of `notification` that name a target.
pub(crate) const TARGETS: [&str; 6] = ["http", "httpCustom", "mqtt", "mqttCustom", "kafka", "kafkaCustom"];
/// Longest text of a packet: topic, user, password. Its length field has 16 bits.
pub(crate) const TEXT_MAX_BYTES: usize = u16::MAX as usize;
/// Longest timeout of a receiver, in milliseconds.
const TIMEOUT_MAX_MS: u64 = 1_800_000;
const METHODS: [Method; 9] = [
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::PATCH,
    Method::HEAD,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
];

#[derive(Debug)]
pub(crate) enum NotificationTarget {
    Http(Http),
    Mqtt(Mqtt),
    Kafka(Kafka),
}

#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) url: MacroTemplate,
    /// The URL, if it has no macros.
    pub(crate) fixed: Option<HttpUrl>,
    /// The URL without its path, if that part has no macros.
    pub(crate) base: Option<HttpUrl>,
    /// Milliseconds; `None` means the default.
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) method: Method,
    pub(crate) headers: Vec<(MacroTemplate, MacroTemplate)>,
    pub(crate) qs: Vec<(MacroTemplate, MacroTemplate)>,
    pub(crate) payload: PayloadTemplate,
}

#[derive(Debug)]
pub(crate) struct Mqtt {
    pub(crate) broker: NotificationBroker,
    pub(crate) topic: MacroTemplate,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) payload: PayloadTemplate,
}

/// An MQTT broker with a login.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NotificationBroker {
    pub(crate) address: Address,
    pub(crate) login: Option<(String, String)>,
}

impl NotificationTarget {
    /// Reads the one target of `notification`.
    pub(crate) fn read(notification: &mut Member, ignored: &mut IgnoredMembers) -> Result<Self, Refusal> {
        let named: Vec<&str> = TARGETS.into_iter().filter(|name| notification.has(name)).collect();
        let [name] = named[..] else {
            let found = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
            return Err(Refusal::bad(format!(
                "notification has {found} of {}: it must have exactly one; name one",
                TARGETS.join(", ")
            )));
        };
        let is_custom = name.ends_with("Custom");
        let Some(mut given) = notification.object(name)? else {
            return Err(Refusal::bad("notification has no target"));
        };
        let target = match name.trim_end_matches("Custom") {
            "http" => Self::Http(Http::read(&mut given, is_custom)?),
            "mqtt" => Self::Mqtt(Mqtt::read(&mut given, is_custom)?),
            _ => Self::Kafka(Kafka::read(&mut given, is_custom)?),
        };
        given.ignore_rest(ignored);
        Ok(target)
    }

    /// Refuses targets that no notification can reach. Stored targets are read without this check: they may be older
    /// than a rule, and then each notification fails on its own.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Http(http) => http.check(),
            Self::Mqtt(mqtt) => mqtt.check(),
            Self::Kafka(kafka) => kafka.check(),
        }
    }

    /// Both targets are the same place.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Http(one), Self::Http(other)) => one.url.raw() == other.url.raw(),
            (Self::Mqtt(one), Self::Mqtt(other)) => one.broker == other.broker && one.topic.raw() == other.topic.raw(),
            (Self::Kafka(one), Self::Kafka(other)) => {
                one.cluster == other.cluster && one.topic.raw() == other.topic.raw()
            }
            (Self::Http(_) | Self::Mqtt(_) | Self::Kafka(_), _) => false,
        }
    }

    /// The hosts, as far as they have no macros.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        match self {
            Self::Http(http) => http.fixed.iter().map(HttpUrl::host).collect(),
            Self::Mqtt(mqtt) => vec![&mqtt.broker.address.host],
            Self::Kafka(kafka) => kafka.cluster.brokers.iter().map(|broker| broker.host.as_str()).collect(),
        }
    }

    pub(crate) fn payload(&self) -> &PayloadTemplate {
        match self {
            Self::Http(http) => &http.payload,
            Self::Mqtt(mqtt) => &mqtt.payload,
            Self::Kafka(kafka) => &kafka.payload,
        }
    }
}

impl Http {
    fn read(given: &mut Member, is_custom: bool) -> Result<Self, Refusal> {
        let text = required(given, "url")?;
        let url = template("url", &text, is_custom)?;
        let timeout_ms = given.number("timeout", 0..=TIMEOUT_MAX_MS)?.filter(|timeout_ms| *timeout_ms > 0);
        let plain = Self {
            fixed: HttpUrl::read(&text).filter(|_| !url.has_macros()),
            base: base(&text),
            url,
            timeout_ms,
            method: Method::POST,
            headers: Vec::new(),
            qs: Vec::new(),
            payload: PayloadTemplate::Plain,
        };
        if !is_custom {
            return Ok(plain);
        }
        let method = method(given)?;
        let headers = pairs(given, "headers", |name| HeaderName::try_from(name).is_ok())?;
        let qs = pairs(given, "qs", |_| true)?;
        let payload = PayloadTemplate::read(given)?;
        let fixed = plain.fixed.filter(|_| qs.is_empty());
        Ok(Self { fixed, method, headers, qs, payload, ..plain })
    }
}

impl Http {
    fn check(&self) -> Result<(), Refusal> {
        if !self.url.has_macros() {
            check_url(self.url.raw())?;
        }
        self.headers.iter().try_for_each(|(name, value)| check_header(name, value))
    }
}

/// Refuses a header that would be left out of every notification, because the text outside macros is no part of one.
fn check_header(name: &MacroTemplate, value: &MacroTemplate) -> Result<(), Refusal> {
    if value.texts().all(is_header_text) && name.texts().all(|text| HeaderName::try_from(text).is_ok()) {
        return Ok(());
    }
    Err(Refusal::bad(format!(
        "header '{}' of httpCustom has {:?}: names and values of headers have no line breaks and no other control \
         characters, also not as %0D%0A; leave them out",
        name.raw(),
        value.raw()
    )))
}

/// Scheme, host and port of a URL; `None` if they have macros.
fn base(url: &str) -> Option<HttpUrl> {
    let begin = url.find("://")? + 3;
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |length| begin + length);
    HttpUrl::read(&url[..end])
}

fn check_url(text: &str) -> Result<(), Refusal> {
    match HttpUrl::read(text) {
        Some(url) => check_host(url.host()),
        None => Err(Refusal::bad(format!(
            "url '{text}': it must be http://host[:port][/path] or https://host[:port][/path], with a port from 1 to 65535; \
             correct it"
        ))),
    }
}

fn method(given: &mut Member) -> Result<Method, Refusal> {
    let Some(name) = given.text("method")? else { return Ok(Method::POST) };
    METHODS.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(&name)).ok_or_else(|| {
        given.wrong("method", &name, "use GET, PUT, POST, DELETE, PATCH, HEAD, OPTIONS, TRACE or CONNECT")
    })
}

impl Mqtt {
    fn read(given: &mut Member, is_custom: bool) -> Result<Self, Refusal> {
        let url = required(given, "url")?;
        let text = required(given, "topic")?;
        let topic = template("topic", &text, is_custom)?;
        if text.contains(['+', '#', '\0']) {
            return Err(given.wrong("topic", &text, "a topic that is published to has no + and no #; correct it"));
        }
        let qos = given.number("qos", 0..=2)?.unwrap_or(0) as u8;
        let retain = given.flag("retain")?.unwrap_or(false);
        let login = match (given.text("user")?, given.text("passwd")?) {
            (Some(user), Some(passwd)) => Some((user, passwd)),
            (None, None) => None,
            _ => return Err(given.wrong("user and passwd", "one of them", "they come together; add the other")),
        };
        let address = broker_address(&url)?;
        let payload = if is_custom { PayloadTemplate::read(given)? } else { PayloadTemplate::Plain };
        Ok(Self { broker: NotificationBroker { address, login }, topic, qos, retain, payload })
    }
}

impl Mqtt {
    /// The topic, if it has no macros.
    pub(crate) fn fixed_topic(&self) -> Option<&str> {
        (!self.topic.has_macros()).then(|| self.topic.raw())
    }

    fn check(&self) -> Result<(), Refusal> {
        check_host(&self.broker.address.host)?;
        if !self.topic.has_macros() {
            check_length("topic", self.topic.raw())?;
        }
        let Some((user, password)) = &self.broker.login else { return Ok(()) };
        check_length("user", user)?;
        check_length("passwd", password)
    }
}

/// Refuses a text that is longer than an MQTT packet allows.
fn check_length(what: &str, text: &str) -> Result<(), Refusal> {
    if text.len() <= TEXT_MAX_BYTES {
        return Ok(());
    }
    Err(Refusal::bad(format!("{what} has {} bytes: MQTT lets it have {TEXT_MAX_BYTES}; shorten it", text.len())))
}

fn broker_address(text: &str) -> Result<Address, Refusal> {
    let wrong = || {
        Refusal::bad(format!(
            "url '{text}': it must be mqtt://host:port or mqtts://host:port without a path; correct it"
        ))
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let is_tls = match scheme {
        "mqtt" => false,
        "mqtts" => true,
        _ => return Err(wrong()),
    };
    let (host, port) = host_and_port(rest).ok_or_else(wrong)?;
    Ok(Address { host, port, is_tls })
}
