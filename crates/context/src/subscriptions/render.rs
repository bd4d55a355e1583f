//! Renders the notification of a change for one subscription.

use std::borrow::Cow;

use millstream_outgoing::{HttpRequest, HttpUrl};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::built_ins::service;
use super::change::ChangeRecord;
use super::expression_work::ExpressionWork;
use super::kafka_target::Kafka;
use super::notification::{KafkaMessage, Lane, Notification, NotificationMessage, STORED_MAX_BYTES, partition_hash};
use super::payload_template::PayloadTemplate;
use super::scope::MacroScope;
use super::shape::{body, has_nothing_new, whole_body};
use super::subscription::Subscription;
use super::target::{Http, Mqtt, NotificationTarget};
use super::template::MacroTemplate;

const JSON_UTF8: &str = "application/json; charset=utf-8";
const TEXT_UTF8: &str = "text/plain; charset=utf-8";
/// Headers with the cause of a notification; a subscription cannot override them.
const FIXED: [&str; 2] = ["fiware-correlator", "ngsiv2-attrsformat"];

/// Inputs that all notifications of one change share.
pub(crate) struct Occasion<'a> {
    pub(crate) change: &'a ChangeRecord<'a>,
    pub(crate) now_ms: i64,
    /// The value of the client's `X-Auth-Token`.
    pub(crate) token: Option<&'a str>,
    /// Custom targets use their templates.
    pub(crate) custom: bool,
    pub(crate) max_bytes: usize,
    pub(crate) work: ExpressionWork,
}

impl Occasion<'_> {
    /// The notification for `subscription`, the `number`th of this change; `None` if the record cannot be read.
    pub(crate) fn notification(&self, subscription: &Subscription, number: usize) -> Option<Notification> {
        let message = match &subscription.target {
            NotificationTarget::Http(target) => self.http(subscription, target, number)?,
            NotificationTarget::Mqtt(target) => self.mqtt(subscription, target)?,
            NotificationTarget::Kafka(target) => self.kafka(subscription, target, number)?,
        };
        let (place, made_ms) = (self.change.place, self.now_ms);
        let lane = Lane::of(&self.change.key.id);
        let made = Notification { place, lane, made_ms, message, token: Default::default() };
        let is_held = subscription.keeps_latest && subscription.throttling_ms > 0;
        let max_bytes = if is_held || subscription.delivery.is_durable {
            self.max_bytes.min(STORED_MAX_BYTES)
        } else {
            self.max_bytes
        };
        if made.size_bytes() <= max_bytes {
            return Some(made);
        }
        let why = format!("the message would have more than {max_bytes} bytes");
        Some(Notification { message: NotificationMessage::Impossible { why }, ..made })
    }

    /// The condition in JEXL holds; on deletion for the entity as it was.
    pub(crate) fn holds(&self, subscription: &Subscription) -> bool {
        self.work.begin();
        subscription.condition.jexl.as_ref().is_none_or(|condition| condition.holds(&self.scope()))
    }

    /// The subscription wants only changed attributes, and none of its own has changed.
    pub(crate) fn has_nothing_for(&self, subscription: &Subscription) -> bool {
        let patch = match subscription.target.payload() {
            PayloadTemplate::Ngsi(patch) if self.custom => Some(patch),
            _ => None,
        };
        has_nothing_new(&subscription.content, self.change, patch)
    }

    fn scope(&self) -> MacroScope<'_> {
        MacroScope {
            change: self.change,
            entity: self.change.entity(),
            token: self.token,
            now_ms: self.now_ms,
            work: &self.work,
        }
    }

    /// Body, its media type, and the name of its format.
    fn content(&self, subscription: &Subscription) -> Option<(String, &'static str, &'static str)> {
        let (content, scope) = (&subscription.content, self.scope());
        let payload = if self.custom { subscription.target.payload() } else { &PayloadTemplate::Plain };
        Some(match payload {
            PayloadTemplate::Plain => {
                let text = match whole_body(&subscription.id, content, self.change) {
                    Some(text) => text,
                    None => body(&subscription.id, content, self.change, self.change.entity()?, None),
                };
                (text, JSON_UTF8, content.format.name())
            }
            PayloadTemplate::Ngsi(patch) => {
                let entity = patch.applied(self.change.entity()?, &scope);
                let text = body(&subscription.id, content, self.change, &entity, Some(patch));
                (text, JSON_UTF8, content.format.name())
            }
            PayloadTemplate::Nothing => (String::new(), "", "custom"),
            PayloadTemplate::Text(template) => (template.fill(&scope), TEXT_UTF8, "custom"),
            PayloadTemplate::Json(template) => {
                let mut text = String::new();
                template.fill(&scope, &mut text);
                (text, JSON_UTF8, "custom")
            }
        })
    }

    fn filled(&self, template: &MacroTemplate) -> String {
        if self.custom { template.fill(&self.scope()) } else { template.raw().to_owned() }
    }

    fn mqtt(&self, subscription: &Subscription, target: &Mqtt) -> Option<NotificationMessage> {
        let topic = self.filled(&target.topic);
        let (payload, ..) = self.content(subscription)?;
        Some(NotificationMessage::mqtt(topic, payload))
    }

    fn kafka(&self, subscription: &Subscription, target: &Kafka, number: usize) -> Option<NotificationMessage> {
        let topic = self.filled(&target.topic);
        let (value, _, format) = self.content(subscription)?;
        let correlator = self.correlator(number);
        let service = service(self.change);
        let mut headers: Vec<Header<'_>> = [
            ("Fiware-Service", service),
            ("Fiware-ServicePath", &self.change.key.path),
            ("Fiware-Correlator", &correlator),
            ("Ngsiv2-AttrsFormat", format),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        let scope = self.scope();
        for (name, value) in target.headers.iter().filter(|_| self.custom) {
            if let (Some(name), Some(value)) = (name.fill_if_there(&scope), value.fill_if_there(&scope)) {
                set(&mut headers, name, value);
            }
        }
        let key = match &target.key {
            Some(key) if self.custom => key.fill_if_there(&scope),
            key => key.as_ref().map(|key| key.raw().to_owned()),
        };
        let headers = headers.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        // Without a key the records of an entity are in one partition, too.
        let place = partition_hash(key.as_deref().unwrap_or(&self.change.key.id));
        Some(NotificationMessage::kafka(KafkaMessage { topic, key, headers, value, place }))
    }

    fn http(&self, subscription: &Subscription, target: &Http, number: usize) -> Option<NotificationMessage> {
        let url = match &target.fixed {
            Some(url) => Cow::Borrowed(url),
            None => {
                let text = self.url(target);
                let Some(url) = HttpUrl::read(&text) else { return Some(NotificationMessage::no_url(&text)) };
                Cow::Owned(url)
            }
        };
        let (body, media, format) = self.content(subscription)?;
        let correlator = self.correlator(number);
        let mut headers = self.headers(media, format, &correlator);
        if !self.custom {
            return Some(NotificationMessage::Http(HttpRequest::write(&url, "POST", &headers, &body)));
        }
        let scope = self.scope();
        for (name, value) in &target.headers {
            if let (Some(name), Some(value)) = (name.fill_if_there(&scope), value.fill_if_there(&scope)) {
                set(&mut headers, name.to_ascii_lowercase(), value);
            }
        }
        Some(NotificationMessage::Http(HttpRequest::write(&url, target.method.as_str(), &headers, &body)))
    }

    /// Names the cause of the change, and the notification among those for it.
    fn correlator(&self, number: usize) -> String {
        format!("{}; cbnotif={number}", root(self.change))
    }

    fn url(&self, target: &Http) -> String {
        let mut url = self.filled(&target.url);
        let scope = self.scope();
        for (name, value) in target.qs.iter().filter(|_| self.custom) {
            let (Some(name), Some(value)) = (name.fill_if_there(&scope), value.fill_if_there(&scope)) else { continue };
            let mark = if url.contains('?') { '&' } else { '?' };
            let [name, value] = [&name, &value].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
            url.push_str(&format!("{mark}{name}={value}"));
        }
        url
    }

    fn headers<'a>(&'a self, media: &'a str, format: &'a str, correlator: &'a str) -> Vec<Header<'a>> {
        let given = [
            ("content-type", media),
            ("accept", "application/json"),
            ("user-agent", concat!("millstream/", env!("CARGO_PKG_VERSION"))),
            ("ngsiv2-attrsformat", format),
            ("fiware-servicepath", &self.change.key.path),
            ("fiware-service", service(self.change)),
            ("fiware-correlator", correlator),
            ("x-auth-token", self.token.unwrap_or_default()),
        ];
        let given = given.into_iter().filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| (name.into(), value.into())).collect()
    }
}

type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Sets a header, or removes it if the value is empty.
fn set(headers: &mut Vec<Header<'_>>, name: String, value: String) {
    if FIXED.iter().any(|fixed| fixed.eq_ignore_ascii_case(&name)) {
        return;
    }
    headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
    if !value.is_empty() {
        headers.push((name.into(), value.into()));
    }
}

/// The correlator of the root cause; for a measurement one built from its position.
pub(crate) fn root(change: &ChangeRecord<'_>) -> String {
    match change.details.correlator.split(';').next().map(str::trim) {
        Some(root) if !root.is_empty() => root.to_owned(),
        _ => {
            let place = change.place;
            let id = format!("{:032x}", place.topic ^ (u128::from(place.partition) << 64 | u128::from(place.offset)));
            [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
        }
    }
}
