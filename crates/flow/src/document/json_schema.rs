//! The JSON Schema of job documents, made from the model and the catalogue, for editors.
//!
//! It holds what a schema can say about single keys; rules about the whole document are checked by
//! [`Document::read`](super::Document::read) alone.

use serde_json::{Map, Value, json};

use super::assemble::default_of;
use super::catalogue::{Catalogue, Key, KeyType, NodeType, Section};
use super::keys::{AGGREGATE, BUNDLE, PARALLELISM, PARAMETER, RESUME_FROM, SINK, SOURCE, TRANSFORM};
use super::model::Role;
use super::reference::SECTIONS;

const NAME: &str = "^[A-Za-z_]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?$";
const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
const SIGNED_DURATION: &str = "^-?[0-9]+(ms|s|m|h|d)$";

/// The JSON Schema (draft 2020-12) of a job document with the node types of `catalogue`.
pub fn json_schema(catalogue: &Catalogue) -> Value {
    let is_of_jobs = |section: &&&Section| section.name != BUNDLE.name && section.name != PARAMETER.name;
    let definitions: Map<String, Value> = SECTIONS
        .iter()
        .filter(is_of_jobs)
        .map(|section| (section.name.to_owned(), object(section, catalogue)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Millstream job",
        "$ref": "#/$defs/job",
        "$defs": definitions,
    })
}

fn object(section: &'static Section, catalogue: &Catalogue) -> Value {
    let keys: Vec<&Key> = section.all().filter(|key| !matches!(key.value, KeyType::NotAvailable(_))).collect();
    let mut schema = keyed(section.doc, &keys);
    let roles = [(&SOURCE, Role::Source), (&TRANSFORM, Role::Transform), (&SINK, Role::Sink)];
    if let Some((_, role)) = roles.into_iter().find(|(node, _)| node.name == section.name) {
        let kinds: Vec<&NodeType> = catalogue.iter().filter(|kind| kind.role == role).collect();
        schema["properties"]["type"]["enum"] = kinds.iter().map(|kind| Value::from(kind.name)).collect();
        schema["allOf"] = kinds.iter().map(|kind| config_of(kind)).collect();
    }
    schema
}

/// The keys of `config` for nodes of one type.
fn config_of(kind: &NodeType) -> Value {
    let keys: Vec<&Key> = kind.keys.iter().collect();
    let mut then = json!({ "properties": { "config": keyed(kind.summary, &keys) } });
    if keys.iter().any(|key| key.is_required) {
        then["required"] = json!(["config"]);
    }
    json!({ "if": { "properties": { "type": { "const": kind.name } } }, "then": then })
}

fn keyed(doc: &str, keys: &[&Key]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = keys.iter().filter(|key| key.is_required).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Value {
    let mut schema = value(key.value);
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), key.doc.into());
        if let Some(default) = default_of(key) {
            schema.insert("default".to_owned(), default);
        }
    }
    schema
}

fn value(form: KeyType) -> Value {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let by_name = |of: Value| json!({ "type": "object", "additionalProperties": of });
    let name = || json!({ "type": "string", "pattern": NAME });
    let expressions = || json!({ "anyOf": [text(), { "type": "array", "items": text(), "minItems": 1 }] });
    match form {
        KeyType::Text
        | KeyType::Topic
        | KeyType::Template
        | KeyType::Condition
        | KeyType::SelectList
        | KeyType::Expression => text(),
        KeyType::Aggregates => {
            json!({ "anyOf": [text(), { "type": "array", "items": reference(&AGGREGATE), "minItems": 1 }] })
        }
        KeyType::WindowSize => json!({
            "anyOf": [{ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d|w|mo|y)$" }, { "type": "integer", "minimum": 1, "maximum": u32::MAX }],
        }),
        KeyType::Extent => json!({
            "anyOf": [{ "type": "string", "pattern": DURATION }, { "type": "integer", "minimum": 1, "maximum": u32::MAX }],
        }),
        KeyType::Whole(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        KeyType::Bool => json!({ "type": "boolean" }),
        KeyType::Duration => json!({ "type": "string", "pattern": DURATION }),
        KeyType::SignedDuration => json!({ "type": "string", "pattern": SIGNED_DURATION }),
        KeyType::DurationOr(section) => {
            json!({ "anyOf": [{ "type": "string", "pattern": DURATION }, reference(section)] })
        }
        KeyType::DurationRange => {
            json!({ "type": "string", "pattern": r"^[0-9]+(ms|s|m|h|d)(\.\.[0-9]+(ms|s|m|h|d))?$" })
        }
        KeyType::Size => json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" }),
        KeyType::OneOf(words) | KeyType::OneOfSoFar(words, _) => json!({ "enum": words }),
        KeyType::Texts => texts(),
        KeyType::Url => json!({ "type": "string", "pattern": "^https?://[^/ ]" }),
        KeyType::Checked(_) | KeyType::Any | KeyType::Config | KeyType::NotAvailable(_) => json!({}),
        KeyType::Name => name(),
        KeyType::Names => json!({ "anyOf": [name(), { "type": "array", "items": name() }] }),
        KeyType::Expressions => expressions(),
        KeyType::ExpressionsByInput => json!({ "anyOf": [expressions(), by_name(expressions())] }),
        KeyType::Labels => by_name(text()),
        KeyType::Params => json!({ "type": "object" }),
        KeyType::ParamsByNode => by_name(json!({ "type": "object" })),
        KeyType::RecordsByNode => by_name(json!({ "type": "array", "items": { "type": "object" } })),
        KeyType::TextsByName => by_name(texts()),
        KeyType::Parallelism => json!({
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 1024 }, reference(&PARALLELISM)],
        }),
        KeyType::ResumeFrom => json!({ "anyOf": [text(), reference(&RESUME_FROM)] }),
        KeyType::Edges => json!({
            "anyOf": [
                { "type": "array", "items": { "type": "array", "items": text(), "minItems": 2, "maxItems": 2 } },
                by_name(json!({ "anyOf": [text(), texts()] })),
            ],
        }),
        KeyType::Object(section) => reference(section),
        KeyType::ListOf(section) => json!({ "type": "array", "items": reference(section), "maxItems": 1000 }),
        KeyType::MapOf(section) => json!({
            "type": "object",
            "propertyNames": name(),
            "additionalProperties": reference(section),
            "maxProperties": 1000,
        }),
    }
}

/// A section of the document by name, one of a connector in full.
fn reference(section: &'static Section) -> Value {
    if SECTIONS.iter().any(|known| known.name == section.name) {
        return json!({ "$ref": format!("#/$defs/{}", section.name) });
    }
    let keys: Vec<&Key> = section.all().collect();
    keyed(section.doc, &keys)
}
