//! The body of a downlink, as each kind of network server documents it.

use serde_json::{Map, Value, json};

use super::provider::Provider;
use crate::registry::{CommandEndpoint, DownlinkValues};

/// The function port of a command whose name is none.
pub(super) const PORT_BY_DEFAULT: u8 = 2;

/// The function port that a command's name gives; `None` if the name is no number.
///
/// # Errors
/// The number is no function port of an application; the text says the rule.
pub(super) fn port_named(name: &str) -> Result<Option<u8>, String> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let port = name.parse().ok().filter(|port| (1..=223).contains(port));
    port.map(Some).ok_or_else(|| format!("the command's name {name} is no function port; use 1 to 223"))
}

/// The body of a downlink. The endpoint's properties stand beside the payload; a port in the command's name replaces theirs.
pub(super) fn body(
    provider: Provider,
    endpoint: &CommandEndpoint,
    values: &DownlinkValues<'_>,
    named: Option<u8>,
) -> Value {
    if let Some(body) = endpoint.body(values) {
        return body;
    }
    let (item, port_member) = match provider {
        Provider::ChirpStackV4 | Provider::ChirpStack => {
            (json!({"confirmed": false, "data": values.payload_base64()}), Some("fPort"))
        }
        Provider::TheThingsStack | Provider::TheThingsNetwork => {
            (json!({"frm_payload": values.payload_base64(), "priority": "NORMAL"}), Some("f_port"))
        }
        Provider::Loriot => {
            let item = json!({"cmd": "tx", "EUI": values.device, "confirmed": false, "data": values.payload_hex()});
            (item, Some("port"))
        }
        // The port has its place in the URI.
        Provider::Actility | Provider::ActilityWireless | Provider::ActilityEnterprise => {
            (json!({"payload": values.payload_hex()}), None)
        }
    };
    let Value::Object(mut item) = item else { return item };
    if let Some(member) = port_member {
        item.insert(member.to_owned(), values.port.into());
    }
    item.extend(endpoint.properties(values));
    if let (Some(member), Some(port)) = (port_member, named) {
        item.insert(member.to_owned(), port.into());
    }
    enveloped(provider, item)
}

fn enveloped(provider: Provider, item: Map<String, Value>) -> Value {
    match provider {
        Provider::ChirpStackV4 => json!({"queueItem": item}),
        Provider::ChirpStack => json!({"deviceQueueItem": item}),
        Provider::TheThingsStack | Provider::TheThingsNetwork => json!({"downlinks": [item]}),
        Provider::Loriot | Provider::Actility | Provider::ActilityWireless | Provider::ActilityEnterprise => {
            Value::Object(item)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_bodies() {
        let plain = json!({"uri": "http://a/"});
        let with = |properties: Value| json!({"uri": "http://a/", "payload-properties": properties});
        for (provider, document, name, expected) in [
            (
                Provider::ChirpStackV4,
                plain.clone(),
                "7",
                json!({"queueItem": {"confirmed": false, "data": "AQo=", "fPort": 7}}),
            ),
            (
                Provider::ChirpStack,
                plain.clone(),
                "on",
                json!({"deviceQueueItem": {"confirmed": false, "data": "AQo=", "fPort": 2}}),
            ),
            (
                Provider::ChirpStackV4,
                with(json!({"confirmed": true, "fPort": 9})),
                "on",
                json!({"queueItem": {"confirmed": true, "data": "AQo=", "fPort": 9}}),
            ),
            (
                Provider::ChirpStackV4,
                with(json!({"fPort": 9})),
                "7",
                json!({"queueItem": {"confirmed": false, "data": "AQo=", "fPort": 7}}),
            ),
            (
                Provider::TheThingsStack,
                with(json!({"priority": "HIGH"})),
                "7",
                json!({"downlinks": [{"frm_payload": "AQo=", "priority": "HIGH", "f_port": 7}]}),
            ),
            (
                Provider::TheThingsNetwork,
                plain.clone(),
                "7",
                json!({"downlinks": [{"frm_payload": "AQo=", "priority": "NORMAL", "f_port": 7}]}),
            ),
            (
                Provider::Loriot,
                with(json!({"appid": "BE7A"})),
                "7",
                json!({"cmd": "tx", "EUI": "D", "confirmed": false, "data": "010A", "port": 7, "appid": "BE7A"}),
            ),
            (Provider::Actility, plain, "7", json!({"payload": "010A"})),
            (
                Provider::ActilityWireless,
                with(json!({"p": "{{payload}}", "port": "{{port}}"})),
                "7",
                json!({"p": "AQo=", "port": 7}),
            ),
        ] {
            let endpoint: CommandEndpoint = serde_json::from_value(document).unwrap();
            let named = port_named(name).unwrap();
            let port = named.unwrap_or(PORT_BY_DEFAULT);
            let values = DownlinkValues { device: "D", payload: &[1, 10], port };
            assert_eq!(body(provider, &endpoint, &values, named), expected, "{provider:?} {name}");
        }
    }

    #[test]
    fn a_name_that_is_a_number_is_a_function_port() {
        for (name, expected) in [("1", Some(1)), ("223", Some(223)), ("on", None), ("-1", None), ("", None)] {
            assert_eq!(port_named(name), Ok(expected), "{name}");
        }
        for name in ["0", "224", "256", "99999999999"] {
            assert!(port_named(name).unwrap_err().contains("1 to 223"), "{name}");
        }
    }
}
