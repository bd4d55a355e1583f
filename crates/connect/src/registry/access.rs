//! What `ext` of a tenant and of a device says of the private space of MQTT clients: whether there is one, and which of
//! its topics the device may use. And whether the tenant's telemetry is taken while nobody reads it.
//!
//! ```json
//! { "mqtt-access": { "publish": ["house/7/#"], "subscribe": ["house/7/#", "weather/+"] } }
//! ```

use millstream_http::Problem;
use serde_json::Value;

use super::mapping;
use super::tenant::Object;
use crate::topic_filter::{covers, is_pattern};

const BROKER: &str = "mqtt-broker";
const ACCESS: &str = "mqtt-access";
const WITHOUT_CONSUMER: &str = "telemetry-without-consumer";

/// What a client does with topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Publish,
    Subscribe,
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }
}

/// Whether a tenant with this `ext` has a private space. It has unless it says otherwise.
pub(crate) fn has_broker(ext: &Object) -> bool {
    ext.get(BROKER).is_none_or(|value| value == "on")
}

/// Whether a tenant with this `ext` wants telemetry only while somebody reads it.
pub(crate) fn needs_consumer(ext: &Object) -> bool {
    ext.get(WITHOUT_CONSUMER).is_some_and(|value| value == "refused")
}

/// Whether a device with this `ext` may do so with all topics of `pattern`. Without a list it may.
pub(crate) fn may(ext: &Object, act: Act, pattern: &str) -> bool {
    let Some(list) = ext.get(ACCESS).and_then(|access| access.get(act.name())) else { return true };
    let mut filters = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    filters.any(|filter| covers(filter, pattern))
}

/// Refuses what a tenant cannot say here.
pub(crate) fn check_tenant(ext: &Object) -> Result<(), Problem> {
    for (name, [one, other], default) in
        [(BROKER, ["on", "off"], "on"), (WITHOUT_CONSUMER, ["kept", "refused"], "kept")]
    {
        if let Some(value) = ext.get(name).filter(|value| **value != one && **value != other) {
            return Err(Problem::invalid(format!("{name} cannot be this"))
                .value(value.to_string())
                .rule(format!("ext.{name} is \"{one}\" or \"{other}\""))
                .remedy(format!("use one of the two, or leave it out: then it is {default}")));
        }
    }
    mapping::check(ext)
}

/// Refuses what a device cannot say of its access.
pub(crate) fn check_device(ext: &Object) -> Result<(), Problem> {
    let Some(access) = ext.get(ACCESS) else { return Ok(()) };
    let refuse = |value: &Value| {
        Problem::invalid("mqtt-access cannot be this")
            .value(value.to_string())
            .rule("ext.mqtt-access has publish and subscribe, each a list of topic filters")
            .remedy("write {\"publish\": [\"a/#\"], \"subscribe\": [\"a/+\"]}; a list that is left out allows all")
    };
    let lists = access.as_object().ok_or_else(|| refuse(access))?;
    for (name, list) in lists {
        let is_known = [Act::Publish, Act::Subscribe].iter().any(|act| act.name() == name);
        let filters = list.as_array().filter(|_| is_known).ok_or_else(|| refuse(access))?;
        if let Some(wrong) = filters.iter().find(|filter| !filter.as_str().is_some_and(is_pattern)) {
            return Err(refuse(wrong));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ext(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_list_allows_what_its_filters_cover_and_none_allows_all() {
        let some = ext(json!({"mqtt-access": {"publish": ["a/#"], "subscribe": []}}));
        for (ext, act, pattern, expected) in [
            (&Object::new(), Act::Publish, "x", true),
            (&some, Act::Publish, "a/b", true),
            (&some, Act::Publish, "b", false),
            (&some, Act::Subscribe, "a/b", false),
            (&ext(json!({"mqtt-access": {"subscribe": ["a/+"]}})), Act::Subscribe, "a/#", false),
        ] {
            assert_eq!(may(ext, act, pattern), expected, "{ext:?} {pattern}");
        }
        for (value, expected) in
            [(json!({}), true), (json!({"mqtt-broker": "on"}), true), (json!({"mqtt-broker": "off"}), false)]
        {
            assert_eq!(has_broker(&ext(value)), expected);
        }
    }

    #[test]
    fn what_cannot_be_is_named_with_its_rule() {
        for wrong in [json!([]), json!({"publish": "a"}), json!({"read": []}), json!({"publish": ["a#"]}), json!(1)] {
            let problem = check_device(&ext(json!({"mqtt-access": wrong}))).unwrap_err().text();
            assert!(problem.contains("topic filters"), "{problem}");
        }
        check_device(&ext(json!({"mqtt-access": {"publish": ["+/x"]}}))).unwrap();
        for wrong in [json!(true), json!("On")] {
            let problem = check_tenant(&ext(json!({"mqtt-broker": wrong}))).unwrap_err().text();
            assert!(problem.contains("\"on\" or \"off\""), "{problem}");
        }
        let problem = check_tenant(&ext(json!({"telemetry-without-consumer": "no"}))).unwrap_err().text();
        assert!(problem.contains("\"kept\" or \"refused\""), "{problem}");
    }
}
