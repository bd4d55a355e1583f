//! Access rules in the `ext` of a tenant and of a device.
//!
//! A tenant's `ext` switches the private space of MQTT clients on or off, declares its topics, and can refuse telemetry
//! while no consumer reads it, and says how payloads of LoRaWAN devices are stored. A device's `ext` restricts the topics of the private space that the device may use.
//!
//! ```json
//! { "mqtt-access": { "publish": ["house/7/#"], "subscribe": ["house/7/#", "weather/+"] } }
//! ```

use millstream_http::Problem;
use serde_json::Value;

use super::mapping;
use super::object::Object;
use crate::topic_filter::{covers, is_pattern, is_reserved};

const BROKER: &str = "mqtt-broker";
const PRIVATE_TOPICS: &str = "mqtt-private-topics";
const ACCESS: &str = "mqtt-access";
const WITHOUT_CONSUMER: &str = "telemetry-without-consumer";
const LORA_PAYLOAD: &str = "lora-payload";

/// The action of a client on topics.
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

/// True if a tenant with this `ext` has a private space, which is the default.
pub(crate) fn has_broker(ext: &Object) -> bool {
    ext.get(BROKER).is_none_or(|value| value == "on")
}

/// True if a tenant with this `ext` allows messages to `topic` in its private space. Without a list it allows them.
pub(crate) fn is_declared(ext: &Object, topic: &str) -> bool {
    let Some(list) = ext.get(PRIVATE_TOPICS) else { return true };
    let mut filters = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    filters.any(|filter| covers(filter, topic))
}

/// True if a tenant with this `ext` takes telemetry only while a consumer reads it.
pub(crate) fn needs_consumer(ext: &Object) -> bool {
    ext.get(WITHOUT_CONSUMER).is_some_and(|value| value == "refused")
}

/// True if a tenant with this `ext` takes the payloads of LoRaWAN devices as its network server has decoded them.
pub(crate) fn takes_decoded_payload(ext: &Object) -> bool {
    ext.get(LORA_PAYLOAD).is_some_and(|value| value == "decoded")
}

/// True if a device with this `ext` may perform the action on all topics of `pattern`. Without a list it may.
pub(crate) fn may(ext: &Object, act: Act, pattern: &str) -> bool {
    let Some(list) = ext.get(ACCESS).and_then(|access| access.get(act.name())) else { return true };
    let mut filters = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    filters.any(|filter| covers(filter, pattern))
}

/// Refuses invalid access members of a tenant.
pub(crate) fn check_tenant(ext: &Object) -> Result<(), Problem> {
    for (name, [one, other], default) in [
        (BROKER, ["on", "off"], "on"),
        (WITHOUT_CONSUMER, ["kept", "refused"], "kept"),
        (LORA_PAYLOAD, ["raw", "decoded"], "raw"),
    ] {
        if let Some(value) = ext.get(name).filter(|value| **value != one && **value != other) {
            return Err(Problem::invalid(format!("{name} cannot be this"))
                .value(value.to_string())
                .rule(format!("ext.{name} is \"{one}\" or \"{other}\""))
                .remedy(format!("use one of the two, or leave it out: then it is {default}")));
        }
    }
    check_private_topics(ext)?;
    mapping::check(ext)
}

fn check_private_topics(ext: &Object) -> Result<(), Problem> {
    let Some(list) = ext.get(PRIVATE_TOPICS) else { return Ok(()) };
    let refuse = |value: &Value| {
        Err(Problem::invalid(format!("{PRIVATE_TOPICS} cannot be this"))
            .value(value.to_string())
            .rule(format!("ext.{PRIVATE_TOPICS} is a list of topic filters that begin with none of Hono's words"))
            .remedy("write [\"house/#\", \"zigbee2mqtt/#\"], or leave it out: then all topics but Hono's are private"))
    };
    let Some(filters) = list.as_array() else { return refuse(list) };
    let is_private = |filter: &str| is_pattern(filter) && !is_reserved(filter);
    match filters.iter().find(|filter| !filter.as_str().is_some_and(is_private)) {
        Some(wrong) => refuse(wrong),
        None => Ok(()),
    }
}

/// Refuses invalid access members of a device.
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
    fn an_access_list_allows_topics_of_its_filters_and_no_list_allows_all() {
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
    fn an_invalid_access_setting_is_refused_with_its_rule() {
        for wrong in [json!([]), json!({"publish": "a"}), json!({"read": []}), json!({"publish": ["a#"]}), json!(1)] {
            let problem = check_device(&ext(json!({"mqtt-access": wrong}))).unwrap_err().text();
            assert!(problem.contains("topic filters"), "{problem}");
        }
        check_device(&ext(json!({"mqtt-access": {"publish": ["+/x"]}}))).unwrap();
        for wrong in [json!(true), json!("On")] {
            let problem = check_tenant(&ext(json!({"mqtt-broker": wrong}))).unwrap_err().text();
            assert!(problem.contains("\"on\" or \"off\""), "{problem}");
        }
        for wrong in [json!("house/#"), json!([1]), json!(["a#"]), json!(["telemetry/#"])] {
            let problem = check_tenant(&ext(json!({"mqtt-private-topics": wrong}))).unwrap_err().text();
            assert!(problem.contains("ext.mqtt-private-topics is a list of topic filters"), "{problem}");
        }
        check_tenant(&ext(json!({"mqtt-private-topics": ["house/#"]}))).unwrap();
        let problem = check_tenant(&ext(json!({"telemetry-without-consumer": "no"}))).unwrap_err().text();
        assert!(problem.contains("\"kept\" or \"refused\""), "{problem}");
        for wrong in [json!(true), json!("json")] {
            let problem = check_tenant(&ext(json!({"lora-payload": wrong}))).unwrap_err().text();
            assert!(problem.contains("\"raw\" or \"decoded\""), "{problem}");
        }
        for (value, expected) in [(json!({}), false), (json!({"lora-payload": "raw"}), false)] {
            assert_eq!(takes_decoded_payload(&ext(value)), expected);
        }
        let decoded = ext(json!({"lora-payload": "decoded"}));
        check_tenant(&decoded).unwrap();
        assert!(takes_decoded_payload(&decoded));
    }
}
