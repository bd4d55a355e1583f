//! The short form of a JSON Schema.

use serde_json::Value;

/// The type of a body, such as `array of object` or `{name, roles, expires?}`; empty if it may be anything.
pub(crate) fn type_name(schema: &Value) -> String {
    if let Some(properties) = schema["properties"].as_object() {
        let is_required =
            |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let names: Vec<String> =
            properties.keys().map(|name| if is_required(name) { name.clone() } else { format!("{name}?") }).collect();
        return format!("{{{}}}", names.join(", "));
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => match type_name(&schema["items"]) {
            items if items.is_empty() => name.clone(),
            items => format!("array of {items}"),
        },
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => String::new(),
    }
}

#[test]
fn schemas_have_short_names() {
    use serde_json::json;
    for (schema, expected) in [
        (json!({}), ""),
        (json!({"type": "object"}), "object"),
        (json!({"type": "array"}), "array"),
        (json!({"type": "array", "items": {"type": "object"}}), "array of object"),
        (json!({"type": ["array", "object"]}), "array or object"),
        (json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {}}}), "{a?, b}"),
    ] {
        assert_eq!(type_name(&schema), expected, "{schema}");
    }
}
