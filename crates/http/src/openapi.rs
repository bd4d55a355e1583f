//! The OpenAPI 3.1 document, rendered from the routes themselves.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::pipeline_answers::{PipelineAnswer, pipeline_answers};
use crate::{Access, ErrorStyle, Limits};

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

    /// All statuses that a route with this access may answer, those of the pipeline included.
    pub(crate) fn statuses(&self, access: Access) -> Vec<u16> {
        let own = self.answers.iter().map(|answer| answer.status);
        own.chain(pipeline_answers(access, !self.bodies.is_empty()).map(|answer| answer.status)).collect()
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
    pub(crate) is_required: bool,
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
    pub(crate) style: &'a ErrorStyle,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) access: Access,
    /// Callers that are limited to topics or types are admitted.
    pub(crate) keeps_to_scope: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) docs: &'a Docs,
}

const DESCRIPTION: &str = "Any request may carry Request-Timeout (milliseconds, or a number with ms, s or m), which \
shortens its deadline, and traceparent. A route for GET answers HEAD, and every path OPTIONS; another method is refused \
with 405 and Allow, an unknown path with 404.";

/// Renders the document. Paths are sorted, so that it changes only with a route.
pub(crate) fn document(title: &str, version: &str, operations: &[Operation<'_>]) -> Value {
    let mut paths: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    let (mut schemas, mut responses) = (BTreeMap::new(), BTreeMap::new());
    for operation in operations {
        let path = operation.path.replace("{*", "{");
        let method = operation.method.as_str().to_ascii_lowercase();
        paths.entry(path).or_default().insert(method, operation.render());
        let style = operation.style;
        schemas.entry(style.schema_name).or_insert_with(style.schema);
        for answer in operation.pipeline_answers() {
            responses
                .entry(style.response_name(answer.status))
                .or_insert_with(|| style.response(answer.status, answer.text));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": title, "version": version, "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {
                "apiToken": {"type": "http", "scheme": "bearer"},
                "deviceCredentials": {"type": "http", "scheme": "basic"},
            },
        },
    })
}

impl ErrorStyle {
    /// The name under which the document has the pipeline's refusal with this status.
    fn response_name(&self, status: u16) -> String {
        format!("{}{status}", self.schema_name)
    }

    fn content(&self) -> (String, Value) {
        let schema = json!({"$ref": format!("#/components/schemas/{}", self.schema_name)});
        (self.media_type.to_owned(), json!({"schema": schema}))
    }

    fn response(&self, status: u16, text: &str) -> Value {
        let mut response = json!({"description": text, "content": Map::from_iter([self.content()])});
        add_headers(status, &mut response);
        response
    }
}

/// Adds the headers that refusals with this status carry.
fn add_headers(status: u16, response: &mut Value) {
    let (name, text, is_required) = match status {
        401 => ("WWW-Authenticate", "How to log in.", true),
        429 | 503 => ("Retry-After", "Seconds after which the same request may succeed.", false),
        _ => return,
    };
    response["headers"] = json!({name: {"description": text, "required": is_required, "schema": {"type": "string"}}});
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
            Access::OptionalLogin => {
                object.insert("security".into(), json!([{}, {"apiToken": []}]));
                return Value::Object(object);
            }
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

    fn pipeline_answers(&self) -> impl Iterator<Item = &'static PipelineAnswer> {
        pipeline_answers(self.access, !self.docs.bodies.is_empty())
    }

    /// The route's own answers and the pipeline's refusals.
    fn answers(&self) -> Value {
        let mut answers: BTreeMap<u16, Value> = BTreeMap::new();
        for answer in &self.docs.answers {
            let known = answers.entry(answer.status).or_insert_with(|| self.own_answer(answer.status));
            answer.add_to(known);
        }
        for answer in self.pipeline_answers() {
            let reference = format!("#/components/responses/{}", self.style.response_name(answer.status));
            answers.entry(answer.status).or_insert_with(|| json!({"$ref": reference}));
        }
        answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect::<Map<_, _>>().into()
    }

    /// An answer with this status, before its documentation is added. A refusal has the body of its group.
    fn own_answer(&self, status: u16) -> Value {
        match status {
            ..400 => json!({"description": ""}),
            400.. => self.style.response(status, ""),
        }
    }
}

impl Parameter {
    fn render(&self) -> Value {
        let place = match self.place {
            ParameterPlace::Path => "path",
            ParameterPlace::Query => "query",
            ParameterPlace::Header => "header",
        };
        let Self { name, text, is_required, .. } = self;
        json!({"name": name, "in": place, "required": is_required, "description": text, "schema": {"type": "string"}})
    }
}

impl Content {
    fn render(&self) -> (String, Value) {
        (self.media_type.to_owned(), json!({"schema": self.schema}))
    }
}

impl ResponseDoc {
    /// Adds the text and the body to what other lines of the route say about the status.
    fn add_to(&self, answer: &mut Value) {
        let known = answer["description"].as_str().unwrap_or_default();
        let text = if known.is_empty() { self.text.to_owned() } else { format!("{known} {}", self.text) };
        answer["description"] = json!(text);
        if let Some(content) = &self.content {
            let (media_type, body) = content.render();
            answer["content"][media_type] = body;
        }
    }
}
