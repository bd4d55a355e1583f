//! Where notifications go, and how they look there.

use axum::http::{HeaderName, Method};
use serde_json::Value;

use super::http_request::HttpUrl;
use super::member::Member;
use super::mqtt_receiver::TEXT_MAX_BYTES;
use super::socket::Address;
use super::template::{JsonTemplate, Template};
use crate::given::kind_of;
use crate::refusal::Refusal;
use crate::syntax::{check_attribute_name, check_identifier};

/// The members of `notification` that name a target.
pub(crate) const TARGETS: [&str; 6] = ["http", "httpCustom", "mqtt", "mqttCustom", "kafka", "kafkaCustom"];
/// Longest time that a receiver may be given, milliseconds.
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

/// Where notifications go.
#[derive(Debug)]
pub(crate) enum Target {
    Http(Http),
    Mqtt(Mqtt),
}

#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) url: Template,
    /// Where all go, if the URL is always the same.
    pub(crate) fixed: Option<HttpUrl>,
    /// Milliseconds; none means the default.
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) method: Method,
    pub(crate) headers: Vec<(Template, Template)>,
    pub(crate) qs: Vec<(Template, Template)>,
    pub(crate) payload: Payload,
}

#[derive(Debug)]
pub(crate) struct Mqtt {
    pub(crate) broker: Broker,
    pub(crate) topic: Template,
    /// 0 to 2.
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) payload: Payload,
}

/// An MQTT broker and the login there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Broker {
    pub(crate) address: Address,
    pub(crate) login: Option<(String, String)>,
}

/// What is sent.
#[derive(Debug)]
pub(crate) enum Payload {
    /// The notification as the format makes it.
    Plain,
    /// No body.
    Nothing,
    Text(Template),
    Json(JsonTemplate),
    Ngsi(Patch),
}

/// What is set in the entity before it is shown.
#[derive(Debug, Default)]
pub(crate) struct Patch {
    pub(crate) id: Option<Template>,
    pub(crate) kind: Option<Template>,
    /// Name, type, value.
    pub(crate) attributes: Vec<(String, Option<String>, JsonTemplate)>,
}

impl Target {
    /// Reads the one target of `notification`.
    pub(crate) fn read(notification: &mut Member) -> Result<Self, Refusal> {
        let named: Vec<&str> = TARGETS.into_iter().filter(|name| notification.has(name)).collect();
        let [name] = named[..] else {
            let found = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
            return Err(Refusal::bad(format!(
                "notification has {found} of {}: it must have exactly one; name one",
                TARGETS.join(", ")
            )));
        };
        if name.starts_with("kafka") {
            return Err(Refusal::later("the target", name));
        }
        let is_custom = name.ends_with("Custom");
        let Some(mut given) = notification.object(name)? else {
            return Err(Refusal::bad("notification has no target"));
        };
        let target = if name.starts_with("http") {
            Self::Http(Http::read(&mut given, is_custom)?)
        } else {
            Self::Mqtt(Mqtt::read(&mut given, is_custom)?)
        };
        given.nothing_else()?;
        Ok(target)
    }

    /// Refuses what no notification could ever be sent to. What is stored is read without it: it may be older than a rule,
    /// and then each notification fails by itself.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Http(http) if !http.url.has_names() => check_url(http.url.raw()),
            Self::Http(_) => Ok(()),
            Self::Mqtt(mqtt) => mqtt.check(),
        }
    }

    /// The host that all go to, if it is always the same.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Http(http) => http.fixed.as_ref().map(HttpUrl::host),
            Self::Mqtt(mqtt) => Some(&mqtt.broker.address.host),
        }
    }

    pub(crate) fn payload(&self) -> &Payload {
        match self {
            Self::Http(http) => &http.payload,
            Self::Mqtt(mqtt) => &mqtt.payload,
        }
    }
}

fn required(given: &mut Member, name: &'static str) -> Result<String, Refusal> {
    let missing = given.wrong(name, "missing", "it is required; add it");
    given.text(name)?.ok_or(missing)
}

fn template(what: &str, text: &str, has_macros: bool) -> Result<Template, Refusal> {
    if has_macros { Template::read(what, text) } else { Ok(Template::literal(text)) }
}

impl Http {
    fn read(given: &mut Member, is_custom: bool) -> Result<Self, Refusal> {
        let text = required(given, "url")?;
        let url = template("url", &text, is_custom)?;
        let timeout_ms = given.number("timeout", 0..=TIMEOUT_MAX_MS)?.filter(|timeout_ms| *timeout_ms > 0);
        let plain = Self {
            fixed: HttpUrl::read(&text).filter(|_| !url.has_names()),
            url,
            timeout_ms,
            method: Method::POST,
            headers: Vec::new(),
            qs: Vec::new(),
            payload: Payload::Plain,
        };
        if !is_custom {
            return Ok(plain);
        }
        let method = method(given)?;
        let headers = pairs(given, "headers")?;
        let qs = pairs(given, "qs")?;
        let payload = Payload::read(given)?;
        let fixed = plain.fixed.filter(|_| qs.is_empty());
        Ok(Self { fixed, method, headers, qs, payload, ..plain })
    }
}

fn check_url(text: &str) -> Result<(), Refusal> {
    match HttpUrl::read(text) {
        Some(_) => Ok(()),
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

fn pairs(given: &mut Member, name: &'static str) -> Result<Vec<(Template, Template)>, Refusal> {
    let Some(object) = given.full_object(name)? else { return Ok(Vec::new()) };
    let pair = |(key, value): (String, Value)| {
        let Value::String(text) = &value else {
            return Err(Refusal::bad(format!("'{key}' of {name} = {value}: it must be a text; send one")));
        };
        let is_legal = name != "headers" || key.contains("${") || HeaderName::try_from(&key).is_ok();
        if !is_legal || key.is_empty() {
            return Err(Refusal::bad(format!("'{key}' of {name} is no header's name; correct it")));
        }
        Ok((Template::read(name, &key)?, Template::read(name, text)?.decoded()))
    };
    object.into_all().into_iter().map(pair).collect()
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
        let payload = if is_custom { Payload::read(given)? } else { Payload::Plain };
        Ok(Self { broker: Broker { address, login }, topic, qos, retain, payload })
    }
}

impl Mqtt {
    /// See [`Target::check`].
    fn check(&self) -> Result<(), Refusal> {
        if !self.topic.has_names() {
            check_length("topic", self.topic.raw())?;
        }
        let Some((user, password)) = &self.broker.login else { return Ok(()) };
        check_length("user", user)?;
        check_length("passwd", password)
    }
}

/// Texts of an MQTT packet have a length of 16 bits.
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
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    if host.is_empty() || host.contains(['/', '?', '#', '@', '$']) || port == 0 {
        return Err(wrong());
    }
    Ok(Address { host: host.trim_matches(['[', ']']).to_owned(), port, is_tls })
}

impl Payload {
    fn read(given: &mut Member) -> Result<Self, Refusal> {
        let named: Vec<&str> = ["payload", "json", "ngsi"].into_iter().filter(|name| given.has(name)).collect();
        if named.len() > 1 {
            return Err(given.wrong(&named.join(" and "), "all", "they exclude each other; leave all but one out"));
        }
        match (given.take("payload"), given.take("json"), given.object("ngsi")?) {
            (Some(Value::Null), _, _) => Ok(Self::Nothing),
            (Some(Value::String(text)), _, _) if text.is_empty() => Ok(Self::Plain),
            (Some(Value::String(text)), _, _) => Ok(Self::Text(Template::read("payload", &text)?.decoded())),
            (Some(other), _, _) => {
                Err(given.wrong("payload", &other.to_string(), "it must be a text or null; correct it"))
            }
            (_, Some(json), _) if json.is_object() || json.is_array() => {
                Ok(Self::Json(JsonTemplate::read("json", &json)?))
            }
            (_, Some(other), _) => {
                Err(given.wrong("json", &other.to_string(), "it must be an object or an array; correct it"))
            }
            (_, _, Some(patch)) => Ok(Self::Ngsi(Patch::read(patch)?)),
            (None, None, None) => Ok(Self::Plain),
        }
    }
}

impl Patch {
    fn read(mut given: Member) -> Result<Self, Refusal> {
        let mut named = |name| given.text(name)?.map(|text| Template::read("ngsi", &text)).transpose();
        let (id, kind) = (named("id")?, named("type")?);
        let attribute = |(name, value): (String, Value)| {
            check_attribute_name(&name)?;
            let what = format!("attribute '{name}' of ngsi");
            let mut given = Member::of(&what, value)?;
            let value = given.take("value").unwrap_or(Value::Null);
            let kind = given.text("type")?;
            kind.as_deref().map_or(Ok(()), |kind| check_identifier(format_args!("the type of {what}"), kind))?;
            check_priority(&what, given.object("metadata")?)?;
            given.nothing_else()?;
            Ok((name, kind, JsonTemplate::read(&what, &value)?))
        };
        let attributes = given.into_all().into_iter().map(attribute).collect::<Result<_, Refusal>>()?;
        Ok(Self { id, kind, attributes })
    }
}

/// The one metadata item that a patch may have; it orders expressions, so it has no effect on bare macros.
fn check_priority(what: &str, metadata: Option<Member>) -> Result<(), Refusal> {
    let Some(mut metadata) = metadata else { return Ok(()) };
    let _ = metadata.take("evalPriority");
    let rest = metadata.into_all();
    match rest.iter().next() {
        None => Ok(()),
        Some((name, value)) => Err(Refusal::bad(format!(
            "{what} has metadata '{name}' (a {}): a patch takes none but evalPriority; remove it",
            kind_of(value)
        ))),
    }
}
