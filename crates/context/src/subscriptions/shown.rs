//! Renders a subscription for clients.

use millstream_types::iso_time;
use serde_json::{Map, Value, json};

use super::kafka_target;
use super::progress::{EndedCounts, SubscriptionProgress};
use super::subscription::Subscription;
use crate::model::content::kind_of;
use crate::model::datetime;

/// Size of a subscription's queue.
pub(crate) struct QueueStatus {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) is_held: bool,
}

/// The definition, counters and queue as one JSON object.
pub(crate) fn shown(
    subscription: &Subscription,
    progress: &SubscriptionProgress,
    waiting: &QueueStatus,
    now_ms: i64,
) -> Value {
    let document = &subscription.document;
    let mut out = Map::new();
    out.insert("id".to_owned(), Value::from(&*subscription.id));
    let mut copy = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    let given = |name: &str| document.get(name).cloned();
    copy("description", given("description").filter(|text| text != ""));
    copy("expires", subscription.expires_ms.map(|at_ms| Value::from(iso_time(at_ms))));
    let status = if subscription.is_expired(now_ms) { "expired" } else { progress.status.name() };
    copy("status", Some(Value::from(status)));
    copy("subject", Some(subject(document)));
    copy("notification", Some(notification(subscription, progress, waiting)));
    copy("throttling", given("throttling").filter(|seconds| seconds != 0));
    Value::Object(out)
}

fn subject(document: &Map<String, Value>) -> Value {
    let mut subject = document.get("subject").cloned().unwrap_or_default();
    if let Some(subject) = subject.as_object_mut() {
        let condition = subject.entry("condition").or_insert_with(|| json!({}));
        if let Some(condition) = condition.as_object_mut() {
            condition.entry("attrs").or_insert_with(|| json!([]));
            condition.entry("notifyOnMetadataChange").or_insert_with(|| json!(true));
        }
    }
    subject
}

fn notification(subscription: &Subscription, progress: &SubscriptionProgress, waiting: &QueueStatus) -> Value {
    let mut shown = subscription.document.get("notification").and_then(Value::as_object).cloned().unwrap_or_default();
    if !shown.contains_key("exceptAttrs") {
        shown.entry("attrs").or_insert_with(|| json!([]));
    }
    shown.entry("onlyChangedAttrs").or_insert_with(|| json!(false));
    shown.entry("covered").or_insert_with(|| json!(false));
    shown.insert("attrsFormat".to_owned(), Value::from(subscription.content.format.name()));
    for target in ["mqtt", "mqttCustom"] {
        if let Some(target) = shown.get_mut(target).and_then(Value::as_object_mut) {
            target.entry("qos").or_insert_with(|| json!(0));
            target.entry("retain").or_insert_with(|| json!(false));
            if let Some(password) = target.get_mut("passwd") {
                *password = Value::from("*****");
            }
        }
    }
    for target in ["kafka", "kafkaCustom"] {
        if let Some(target) = shown.get_mut(target).and_then(Value::as_object_mut) {
            kafka_target::show(target);
        }
    }
    for custom in ["httpCustom", "mqttCustom", "kafkaCustom"] {
        if let Some(target) = shown.get_mut(custom).and_then(Value::as_object_mut) {
            show_payload(target);
        }
    }
    let at = |ms: Option<i64>| ms.map(|ms| Value::from(iso_time(ms)));
    let more_than_none = |count: u64| (count > 0).then(|| Value::from(count));
    for (name, value) in [
        ("timesSent", more_than_none(progress.times_sent)),
        ("lastNotification", at(progress.last_notification_ms)),
        ("lastSuccess", at(progress.last_success_ms)),
        ("lastSuccessCode", progress.last_success_code.map(Value::from)),
        ("lastFailure", at(progress.last_failure_ms)),
        ("lastFailureReason", progress.last_failure_reason.clone().map(Value::from)),
        ("failsCounter", more_than_none(progress.fails)),
    ] {
        if let Some(value) = value {
            shown.insert(name.to_owned(), value);
        }
    }
    if let Some(EndedCounts { delivered, given_up }) = progress.ended.filter(|_| progress.times_sent > 0) {
        shown.insert("ended".to_owned(), json!({"delivered": delivered, "givenUp": given_up}));
    }
    if waiting.count > 0 || progress.dropped > 0 || waiting.is_held {
        let (QueueStatus { count, bytes, is_held }, dropped) = (waiting, progress.dropped);
        shown.insert("queue".to_owned(), json!({"length": count, "bytes": bytes, "dropped": dropped, "held": is_held}));
    }
    Value::Object(shown)
}

/// Leaves out an empty payload, which is none, and shows the default types of a patch's attributes.
fn show_payload(target: &mut Map<String, Value>) {
    if target.get("payload").is_some_and(|payload| payload == "") {
        target.shift_remove("payload");
    }
    let patch = target.get_mut("ngsi").and_then(Value::as_object_mut);
    let attributes = patch.into_iter().flatten().filter(|(name, _)| !["id", "type"].contains(&name.as_str()));
    for attribute in attributes.filter_map(|(_, attribute)| attribute.as_object_mut()) {
        let kind = kind_of(attribute.get("value").unwrap_or(&Value::Null));
        attribute.entry("type").or_insert_with(|| Value::from(kind));
    }
}

/// The document with normalized dates, without the parts that are kept elsewhere.
pub(crate) fn settled(mut document: Map<String, Value>) -> Map<String, Value> {
    document.shift_remove("status");
    if let Some(at_ms) = document.get("expires").and_then(Value::as_str).and_then(datetime::parse) {
        document.insert("expires".to_owned(), Value::from(iso_time(at_ms)));
    } else if document.get("expires").and_then(Value::as_str) == Some("") {
        document.shift_remove("expires");
    }
    document
}
