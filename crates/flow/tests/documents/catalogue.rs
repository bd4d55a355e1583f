//! A catalogue with the types that the documents of these tests name, and the context around it.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_flow::{
    DocumentContext, EarlierJob, EarlierJobs, Key, KeyType, NoEarlierJob, NodeType, Role, Section, TopicAccess,
};
use millstream_types::{AllowedTargets, TenantId};
use serde_json::{Value, json};

const fn key(name: &'static str, value: KeyType) -> Key {
    Key { name, value, is_required: false, default: None, doc: "" }
}

const fn required(name: &'static str, value: KeyType) -> Key {
    Key { is_required: true, ..key(name, value) }
}

const fn with_default(name: &'static str, value: KeyType, default: &'static str) -> Key {
    Key { default: Some(default), ..key(name, value) }
}

const fn node(name: &'static str, role: Role, keys: &'static [Key], can_end: bool) -> NodeType {
    NodeType { name, role, summary: "", keys, can_end, keeps_state: false }
}

fn records(value: &Value) -> Result<(), String> {
    match value.as_array() {
        Some(records) if records.iter().all(Value::is_object) => Ok(()),
        _ => Err("write a list of records".to_owned()),
    }
}

fn record(value: &Value) -> Result<(), String> {
    value.is_object().then_some(()).ok_or_else(|| "write an object of fields".to_owned())
}

static STREAM_IN: [Key; 3] = [
    required("topic", KeyType::Topic),
    key("group", KeyType::Text),
    with_default("start", KeyType::OneOf(&["earliest", "latest"]), "latest"),
];
static STREAM_OUT: [Key; 3] =
    [required("topic", KeyType::Topic), key("key", KeyType::Text), with_default("linger", KeyType::Duration, "5ms")];
static LIST: [Key; 2] = [required("records", KeyType::Checked(records)), with_default("open", KeyType::Bool, "false")];
static GENERATOR: [Key; 2] =
    [required("record", KeyType::Checked(record)), with_default("rate", KeyType::Text, "unlimited")];
static FILE: [Key; 3] = [
    required("path", KeyType::Text),
    with_default("max_size", KeyType::Size, "128MiB"),
    Key { is_required: false, ..required("columns", KeyType::Texts) },
];
static HTTP: [Key; 3] = [
    required("url", KeyType::Url),
    with_default("retries", KeyType::Whole(0, 100), "5"),
    key("headers", KeyType::Labels),
];
static ENTITIES: [Key; 3] =
    [required("id", KeyType::Template), required("type", KeyType::Text), key("attrs", KeyType::Texts)];
static MAP: [Key; 1] = [key("ttl", KeyType::Duration)];
static DEDUPLICATE: [Key; 1] = [required("ttl", KeyType::Duration)];
static ALARM: [Key; 7] = [
    key("raise", KeyType::Condition),
    key("clear", KeyType::Condition),
    key("for", KeyType::Duration),
    key("clear_for", KeyType::Duration),
    key("absent_after", KeyType::Duration),
    key("forget_after", KeyType::Duration),
    key("severity", KeyType::Expression),
];
static EXPLODE: [Key; 2] = [required("field", KeyType::Text), key("as", KeyType::Text)];
static LOOKUP: [Key; 8] = [
    key("topic", KeyType::Topic),
    key("bucket", KeyType::Text),
    key("file", KeyType::Text),
    key("column", KeyType::Text),
    key("entities", KeyType::Object(&LOOKUP_ENTITIES)),
    key("key", KeyType::Expression),
    required("as", KeyType::Text),
    with_default("missing", KeyType::Any, "null"),
];
static JOIN: [Key; 6] = [
    required("left", KeyType::Name),
    required("right", KeyType::Name),
    required("on", KeyType::ExpressionsByInput),
    required("within", KeyType::DurationOr(&WITHIN)),
    with_default("kind", KeyType::OneOf(&["inner", "left", "right", "full"]), "inner"),
    key("as", KeyType::Labels),
];
static WITHIN: Section = Section {
    name: "within",
    path: "",
    doc: "",
    keys: &[&[
        with_default("before", KeyType::SignedDuration, "0s"),
        with_default("after", KeyType::SignedDuration, "0s"),
    ]],
};

static LOOKUP_ENTITIES: Section =
    Section { name: "lookup entity", path: "config.entities", doc: "", keys: &[&LOOKUP_ENTITY_KEYS] };

static LOOKUP_ENTITY_KEYS: [Key; 4] = [
    required("id", KeyType::Template),
    key("type", KeyType::Text),
    key("attrs", KeyType::Texts),
    with_default("service_path", KeyType::Any, "/"),
];

pub(crate) fn context() -> DocumentContext {
    let (source, transform, sink) = (Role::Source, Role::Transform, Role::Sink);
    DocumentContext {
        catalogue: vec![
            node("stream", source, &STREAM_IN, false),
            node("list", source, &LIST, true),
            node("generator", source, &GENERATOR, false),
            node("file", source, &FILE, true),
            node("filter", transform, &[], false),
            node("map", transform, &MAP, false),
            node("function", transform, &[], false),
            node("explode", transform, &EXPLODE, false),
            node("lookup", transform, &LOOKUP, false),
            NodeType { keeps_state: true, ..node("deduplicate", transform, &DEDUPLICATE, false) },
            NodeType { keeps_state: true, ..node("alarm", transform, &ALARM, false) },
            NodeType { keeps_state: true, ..node("aggregate", transform, &[], false) },
            NodeType { keeps_state: true, ..node("join", transform, &JOIN, false) },
            node("stream", sink, &STREAM_OUT, false),
            node("file", sink, &FILE, false),
            node("http", sink, &HTTP, false),
            node("entities", sink, &ENTITIES, false),
            node("stdout", sink, &[], false),
            node("collect", sink, &[], false),
            node("blackhole", sink, &[], false),
            node("function", sink, &[], false),
        ],
        functions: vec!["bench.inc", "math.add", "math.multiply", "math.negate"],
        hooks: vec!["params.set", "trace.point", "trace.accepted", "trace.emitted", "trace.rejected"],
        params: BTreeMap::new(),
        bundles: bundles(),
        topics: Some(TopicAccess { tenant: TenantId::default(), may_read: true, may_write: true }),
        targets: Some(Arc::new(
            AllowedTargets::read("flow.http_allowed_targets", &["*.example.org".to_owned()], Arc::new(|| true))
                .unwrap(),
        )),
        earlier: Some(Arc::new(Earlier)),
    }
}

/// One job that documents may go on from.
#[derive(Debug)]
struct Earlier;

impl EarlierJobs for Earlier {
    fn named(&self, job: &str) -> Result<EarlierJob, NoEarlierJob> {
        let stored = json!({
            "name": "earlier",
            "sources": {"messages": {"type": "stream", "config": {"topic": "messages"}}},
            "transforms": {"once": {"type": "deduplicate"}},
        });
        let message = || format!("no job has the id or name '{job}'");
        let known = (job == "earlier").then(|| EarlierJob::new("1", &stored, None));
        known.ok_or_else(|| NoEarlierJob { message: message(), names: vec!["earlier".to_owned()] })
    }

    fn replaced(&self, _name: &str) -> Option<EarlierJob> {
        None
    }
}

fn bundles() -> BTreeMap<String, String> {
    let texts = [
        ("cleaning", include_str!("bundles/cleaning.yaml")),
        ("paid", include_str!("bundles/paid.yaml")),
        ("sites", include_str!("bundles/sites.yaml")),
        ("weather", include_str!("bundles/weather.yaml")),
        ("broken", include_str!("bundles/broken.yaml")),
        ("no-yaml", "version: 1\n  kind: [Bundle"),
    ];
    texts.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}
