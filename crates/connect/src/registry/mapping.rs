//! Rules in a tenant's `ext` that also record messages of the private space as telemetry or events.
//!
//! The first rule that matches the topic decides. With these rules, firmware with topics of its own feeds the log.
//!
//! ```json
//! { "mqtt-mapping": [
//!     { "topic": "tele/+/SENSOR", "to": "telemetry" },
//!     { "topic": "zigbee2mqtt/+", "to": "event", "device-level": 2, "unknown": "publish" } ] }
//! ```
//!
//! The rules are parsed once, when the tenant is read. The comparison with a topic copies nothing.

use std::sync::Arc;

use millstream_http::Problem;
use serde_json::Value;

use super::object::Object;
use crate::stream::Stream;
use crate::topic_filter::{LEVELS_MAX, covers, is_pattern, is_reserved, why_not_published};

const MAPPING: &str = "mqtt-mapping";
const TOPIC: &str = "topic";
const TO: &str = "to";
const DEVICE_LEVEL: &str = "device-level";
const UNKNOWN: &str = "unknown";
/// Rules of one tenant: each message may be compared with all of them.
const RULES_MAX: usize = 64;
const REMEDY: &str = "write for example {\"topic\": \"tele/+/SENSOR\", \"to\": \"telemetry\"}, or {\"topic\": \"z/+\", \
                      \"to\": \"telemetry\", \"device-level\": 2, \"unknown\": \"publish\"}";

/// The rules of a tenant, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapping(Vec<Rule>);

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    pattern: Box<str>,
    stream: Stream,
    /// The level of the topic that names the device, counted from 0.
    device_level: Option<usize>,
    on_unknown: OnUnknown,
}

/// The fate of a message whose rule names a device that is not registered, and that its publisher may not register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnUnknown {
    /// It is refused, as on Hono's topics.
    #[default]
    Refuse,
    /// It is published to the subscribers of its topic, and not recorded.
    Publish,
}

/// The additional destination of a message of the private space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrivateRoute<'a> {
    pub(crate) stream: Stream,
    /// The sending device, if it is not the publisher.
    pub(crate) device: Option<&'a str>,
    pub(crate) on_unknown: OnUnknown,
}

impl Mapping {
    /// The rules in a tenant's `ext`. `None` if it has none, or some that were stored before they had a meaning.
    pub(crate) fn of(ext: &Object) -> Option<Arc<Self>> {
        let mapping = read(ext.get(MAPPING)?).ok()?;
        (!mapping.0.is_empty()).then(|| Arc::new(mapping))
    }

    /// The route of a message on `topic`; `None` if no rule matches. A rule with a device level matches only topics in
    /// which that level is present and not empty.
    pub(crate) fn route<'a>(&self, topic: &'a str) -> Option<PrivateRoute<'a>> {
        self.0.iter().find_map(|rule| rule.route(topic))
    }
}

impl Rule {
    fn route<'a>(&self, topic: &'a str) -> Option<PrivateRoute<'a>> {
        if !covers(&self.pattern, topic) {
            return None;
        }
        let device = match self.device_level {
            None => None,
            Some(level) => Some(topic.split('/').nth(level).filter(|device| !device.is_empty())?),
        };
        Some(PrivateRoute { stream: self.stream, device, on_unknown: self.on_unknown })
    }
}

pub(super) fn check(ext: &Object) -> Result<(), Problem> {
    ext.get(MAPPING).map_or(Ok(()), |given| read(given).map(drop))
}

fn read(given: &Value) -> Result<Mapping, Problem> {
    let refuse = |value: String, rule: String| {
        Problem::invalid(format!("{MAPPING} cannot be this")).value(value).rule(rule).remedy(REMEDY)
    };
    let Some(rules) = given.as_array() else {
        return Err(refuse(given.to_string(), format!("ext.{MAPPING} is a list of rules, each with {TOPIC} and {TO}")));
    };
    if rules.len() > RULES_MAX {
        return Err(refuse(format!("{} rules", rules.len()), format!("a tenant has at most {RULES_MAX}")));
    }
    let read = rules.iter().map(|rule| read_rule(rule).map_err(|why| refuse(rule.to_string(), why)));
    read.collect::<Result<_, _>>().map(Mapping)
}

/// Reads a rule or returns its fault.
fn read_rule(given: &Value) -> Result<Rule, String> {
    let members = || format!("a rule is an object with {TOPIC}, {TO} and perhaps {DEVICE_LEVEL} and {UNKNOWN}");
    let rule = given.as_object().ok_or_else(members)?;
    if rule.keys().any(|name| ![TOPIC, TO, DEVICE_LEVEL, UNKNOWN].contains(&name.as_str())) {
        return Err(members());
    }
    let pattern = rule.get(TOPIC).and_then(Value::as_str).ok_or_else(members)?;
    if let Some(why) = why_not_mapped(pattern) {
        return Err(format!("{TOPIC} is a filter of topics of the private space: {why}"));
    }
    let stream = match rule.get(TO).and_then(Value::as_str) {
        Some("telemetry") => Stream::Telemetry,
        Some("event") => Stream::Event,
        _ => return Err(format!("{TO} is \"telemetry\" or \"event\"")),
    };
    let device_level = rule.get(DEVICE_LEVEL).map(|level| read_level(level, pattern)).transpose()?;
    let on_unknown = match rule.get(UNKNOWN).map(Value::as_str) {
        None => OnUnknown::Refuse,
        Some(_) if device_level.is_none() => {
            return Err(format!(
                "{UNKNOWN} goes with {DEVICE_LEVEL}: without it the device is the one that has logged in"
            ));
        }
        Some(Some("refuse")) => OnUnknown::Refuse,
        Some(Some("publish")) => OnUnknown::Publish,
        Some(_) => return Err(format!("{UNKNOWN} is \"refuse\" or \"publish\"")),
    };
    Ok(Rule { pattern: pattern.into(), stream, device_level, on_unknown })
}

fn why_not_mapped(pattern: &str) -> Option<&'static str> {
    if is_reserved(pattern) {
        return Some("its first level is none of t, telemetry, e, event, c, command and error");
    }
    let why = why_not_published(pattern);
    why.or_else(|| (!is_pattern(pattern)).then_some("+ stands alone in its level, and # in the last one"))
}

/// Reads a level that topics of `pattern` have; the result counts from 0.
fn read_level(given: &Value, pattern: &str) -> Result<usize, String> {
    let most = if pattern.ends_with('#') { LEVELS_MAX } else { pattern.split('/').count() };
    let level = given.as_u64().and_then(|level| usize::try_from(level).ok());
    let level = level.filter(|level| (1..=most).contains(level));
    level.map(|level| level - 1).ok_or_else(|| {
        format!("{DEVICE_LEVEL} is a level of the topic that names the device, a whole number of 1 to {most}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ext(rules: Value) -> Object {
        json!({ "mqtt-mapping": rules }).as_object().unwrap().clone()
    }

    #[test]
    fn the_first_rule_that_takes_a_topic_decides_stream_and_device() {
        let mapping = Mapping::of(&ext(json!([
            {"topic": "tele/+/SENSOR", "to": "telemetry"},
            {"topic": "tele/door/#", "to": "event"},
            {"topic": "tele/#", "to": "telemetry", "device-level": 2},
            {"topic": "z/+", "to": "event", "device-level": 2, "unknown": "publish"},
            {"topic": "z/#", "to": "telemetry"},
            {"topic": "+/any", "to": "event"},
        ])))
        .unwrap();
        let (telemetry, event) = (Stream::Telemetry, Stream::Event);
        for (topic, expected) in [
            ("tele/door/SENSOR", Some((telemetry, None))),
            ("tele/door/STATE", Some((event, None))),
            ("tele/door", Some((event, None))),
            ("tele/lamp/STATE", Some((telemetry, Some("lamp")))),
            ("tele/lamp", Some((telemetry, Some("lamp")))),
            // No such level, or nothing there.
            ("tele", None),
            ("tele//STATE", None),
            ("z/lamp", Some((event, Some("lamp")))),
            ("z/", Some((telemetry, None))),
            ("z", Some((telemetry, None))),
            ("z/a/b", Some((telemetry, None))),
            ("x/any", Some((event, None))),
            ("$x/any", None),
            ("other", None),
        ] {
            let route = mapping.route(topic);
            let on_unknown = if topic == "z/lamp" { OnUnknown::Publish } else { OnUnknown::Refuse };
            assert_eq!(route, expected.map(|(stream, device)| PrivateRoute { stream, device, on_unknown }), "{topic}");
        }
    }

    #[test]
    fn a_tenant_without_valid_rules_has_no_mapping() {
        for given in [json!([]), json!("all"), json!([{"topic": "a"}])] {
            assert_eq!(Mapping::of(&ext(given)), None);
        }
        assert_eq!(Mapping::of(&Object::new()), None);
    }

    #[test]
    fn invalid_rules_are_refused_with_value_and_rule() {
        let rule = |topic: &str, to: &str, level: Value| json!([{"topic": topic, "to": to, "device-level": level}]);
        let filter = "filter of topics of the private space";
        for (given, value, told) in [
            (json!({}), "{}", "is a list of rules"),
            (json!([1]), "1", "a rule is an object"),
            (json!([{"topic": "a"}]), r#""a""#, "\"telemetry\" or \"event\""),
            (json!([{"to": "event"}]), "event", "with topic, to and perhaps device-level and unknown"),
            (
                json!([{"topic": "a", "to": "event", "qos": 1}]),
                "qos",
                "with topic, to and perhaps device-level and unknown",
            ),
            (rule("a", "Event", json!(1)), "Event", "\"telemetry\" or \"event\""),
            (rule("", "event", json!(1)), r#""""#, filter),
            (rule("a#", "event", json!(1)), "a#", "+ stands alone"),
            (rule("telemetry/#", "event", json!(1)), "telemetry/#", "first level is none of"),
            (rule("$share/g/a", "event", json!(1)), "$share/g/a", "$SYS and $share are reserved"),
            (rule("a/+", "event", json!(0)), "0", "a whole number of 1 to 2"),
            (rule("a/+", "event", json!(3)), "3", "a whole number of 1 to 2"),
            (rule("a/#", "event", json!(129)), "129", "a whole number of 1 to 128"),
            (rule("a/+", "event", json!("2")), r#""2""#, "a whole number of 1 to 2"),
            (json!([{"topic": "a", "to": "event", "unknown": "publish"}]), "publish", "unknown goes with device-level"),
            (
                json!([{"topic": "a", "to": "event", "device-level": 1, "unknown": "keep"}]),
                "keep",
                "unknown is \"refuse\" or \"publish\"",
            ),
            (
                json!([{"topic": "a", "to": "event", "device-level": 1, "unknown": true}]),
                "true",
                "unknown is \"refuse\" or \"publish\"",
            ),
            (json!(vec![json!({"topic": "a", "to": "event"}); RULES_MAX + 1]), "65 rules", "at most 64"),
        ] {
            let problem = check(&ext(given.clone())).unwrap_err().text();
            assert!(problem.contains(value) && problem.contains(told), "{given}: {problem}");
        }
        check(&ext(json!(vec![json!({"topic": "a", "to": "event"}); RULES_MAX]))).unwrap();
        check(&ext(json!([{"topic": "a/#", "to": "telemetry", "device-level": 128}]))).unwrap();
        check(&ext(json!([{"topic": "a/+", "to": "event", "device-level": 2, "unknown": "refuse"}]))).unwrap();
        check(&Object::new()).unwrap();
    }
}
