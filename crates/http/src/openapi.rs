//! The OpenAPI 3.1 document, rendered from the routes themselves.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::{Access, Limits};

/// A documented body: its media type and its JSON Schema.
#[derive(Debug, Clone)]
pub struct Content {
    pub(crate) media_type: &'static str,
    pub(crate) schema: Value,
}

impl Content {
    /// JSON that matches `schema` (JSON Schema 2020-12).
    pub fn json(schema: Value) -> Self {
        Self { media_type: "application/json", schema }
    }

    /// Plain text, with media type `text/plain`.
    pub fn text() -> Self {
        Self { media_type: "text/plain", schema: json!({"type": "string"}) }
    }

    /// Lines of JSON, each of which matches `schema`.
    pub fn ndjson(schema: Value) -> Self {
        Self { media_type: "application/x-ndjson", schema }
    }

    /// Server-sent events whose data matches `schema`.
    pub fn events(schema: Value) -> Self {
        Self { media_type: "text/event-stream", schema }
    }

    /// Opaque bytes of the given media type.
    pub fn bytes(media_type: &'static str) -> Self {
        Self { media_type, schema: json!({}) }
    }
}

/// The documentation of a route.
#[derive(Debug)]
pub(crate) struct Docs {
    pub(crate) summary: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) bodies: Vec<Content>,
    pub(crate) answers: Vec<ResponseDoc>,
}

impl Docs {
    pub(crate) fn new(summary: &'static str) -> Self {
        Self { summary, parameters: Vec::new(), bodies: Vec::new(), answers: Vec::new() }
    }

    /// The first missing part of the documentation, given the parameters of the path.
    pub(crate) fn missing(&self, path_params: &[String]) -> Option<String> {
        let documented =
            |name: &String| self.parameters.iter().any(|p| p.place == ParameterPlace::Path && p.name == name);
        if self.summary.is_empty() {
            return Some("a summary".to_owned());
        }
        if self.answers.is_empty() {
            return Some("any answer".to_owned());
        }
        path_params.iter().find(|name| !documented(name)).map(|name| format!("the path parameter '{name}'"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterPlace {
    Path,
    Query,
    Header,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) place: ParameterPlace,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

#[derive(Debug)]
pub(crate) struct ResponseDoc {
    pub(crate) status: u16,
    pub(crate) text: &'static str,
    pub(crate) content: Option<Content>,
}

/// One method and path of the document.
pub(crate) struct Operation<'a> {
    pub(crate) group: &'static str,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) access: Access,
    /// Callers that are limited to topics or types are admitted.
    pub(crate) keeps_to_scope: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) docs: &'a Docs,
}

/// Renders the document. Paths are sorted, so that it changes only with a route.
pub(crate) fn document(title: &str, version: &str, operations: &[Operation<'_>]) -> Value {
    let mut paths: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for operation in operations {
        let path = operation.path.replace("{*", "{");
        let method = operation.method.as_str().to_ascii_lowercase();
        paths.entry(path).or_default().insert(method, operation.render());
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {"Problem": problem_schema()},
            "responses": {
                "Problem": {
                    "description": "Refused: what was given, the rule it breaks and the remedy (RFC 9457).",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            },
            "securitySchemes": {
                "apiToken": {"type": "http", "scheme": "bearer"},
                "deviceCredentials": {"type": "http", "scheme": "basic"},
            },
        },
    })
}

impl Operation<'_> {
    fn render(&self) -> Value {
        let mut object = Map::new();
        object.insert("tags".into(), json!([self.group]));
        object.insert("summary".into(), json!(self.docs.summary));
        object.insert("operationId".into(), json!(self.id()));
        if !self.docs.parameters.is_empty() {
            object.insert("parameters".into(), self.docs.parameters.iter().map(Parameter::render).collect());
        }
        if !self.docs.bodies.is_empty() {
            let content: Map<_, _> = self.docs.bodies.iter().map(Content::render).collect();
            object.insert("requestBody".into(), json!({"content": content, "x-max-bytes": self.limits.body_max_bytes}));
        }
        object.insert("responses".into(), self.answers());
        let (scheme, role) = match self.access {
            Access::Public => return Value::Object(object),
            Access::Role(role) => ("apiToken", format!("{role:?}").to_lowercase()),
            Access::Operator(role) => ("apiToken", format!("{role:?} in every tenant").to_lowercase()),
            Access::Device => ("deviceCredentials", "device".to_owned()),
        };
        object.insert("security".into(), json!([{scheme: []}]));
        object.insert("x-role".into(), json!(role));
        if self.keeps_to_scope {
            object.insert("x-keeps-to-scope".into(), json!(true));
        }
        Value::Object(object)
    }

    /// The operation id: method and path as one stable, unique word.
    fn id(&self) -> String {
        let segments = self.path.split('/').filter(|segment| !segment.is_empty());
        segments.fold(self.method.as_str().to_ascii_lowercase(), |id, segment| {
            let word = segment.replace(|c: char| !c.is_ascii_alphanumeric(), "");
            id + if segment.contains('{') { "_by_" } else { "_" } + &word
        })
    }

    /// The route's own answers and the pipeline's refusals.
    fn answers(&self) -> Value {
        let mut answers: BTreeMap<u16, Value> = BTreeMap::new();
        let takes_body = !self.docs.bodies.is_empty();
        let checks_caller = self.access != Access::Public;
        for (status, applies) in [(401, checks_caller), (403, checks_caller), (413, takes_body), (503, true)] {
            if applies {
                answers.insert(status, json!({"$ref": "#/components/responses/Problem"}));
            }
        }
        for answer in &self.docs.answers {
            answers.insert(answer.status, answer.render());
        }
        answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect::<Map<_, _>>().into()
    }
}

impl Parameter {
    fn render(&self) -> Value {
        let (place, required) = match self.place {
            ParameterPlace::Path => ("path", true),
            ParameterPlace::Query => ("query", false),
            ParameterPlace::Header => ("header", false),
        };
        json!({"name": self.name, "in": place, "required": required, "description": self.text, "schema": {"type": "string"}})
    }
}

impl Content {
    fn render(&self) -> (String, Value) {
        (self.media_type.to_owned(), json!({"schema": self.schema}))
    }
}

impl ResponseDoc {
    fn render(&self) -> Value {
        match &self.content {
            Some(content) => json!({"description": self.text, "content": Map::from_iter([content.render()])}),
            None => json!({"description": self.text}),
        }
    }
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "error"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "value": {"type": "string", "description": "What was given."},
            "rule": {"type": "string", "description": "The rule that it breaks."},
            "remedy": {"type": "string", "description": "What to do about it."},
            "error": {"type": "string", "description": "All of it in one text."},
        },
    })
}
