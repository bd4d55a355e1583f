//! `docs/api.md`, which is made from the documents that a server answers.
//! `UPDATE_DOCS=1 cargo test -p millstream-server --test api page` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use millstream_testkit::{Process, ask};
use serde_json::Value;

use crate::type_name::type_name;

const HEAD: &str = "\
# HTTP API

This page is made from the OpenAPI documents of a running server; `UPDATE_DOCS=1 cargo test -p millstream-server --test api page`
writes it anew. The documents themselves are at `/openapi.json` of the listener of applications (`http://127.0.0.1:8000`) and of that of
devices (`http://127.0.0.1:8080`).

Devices also speak [MQTT](connect-mqtt.md), the log speaks [Kafka's protocol](log.md#kafka-clients), and the store
[Redis's](store.md#redis-clients).

- Before each route stands who may call it: a role of the [API token](configuration.md#api-tokens) in the request's tenant, a device by
  its [credentials](connect-http.md), or anybody. *Every tenant* takes a token that is good for tenant `*`; *limits* means that a
  token with limits to topics, types or keys is taken, within them. Without any token the server takes callers of this machine as all of these.
- `Fiware-Service` names the tenant of any route that has no tenant in its path; `default` if left out.
- Any request may carry `Request-Timeout` (milliseconds, or a number with `ms`, `s` or `m`), which shortens its deadline, and
  `traceparent`.
- Parameters of the query and headers may be left out, except those marked *required*.

## Answers of every route

A route answers these beside its own, as far as they can happen: 401, 403 and 429 where callers log in, 408 and 415 where it
takes a body.

";

/// Sections by tag: heading, and the page that tells more. Further tags follow under their own names.
const SECTIONS: [(&[&str], &str, &str); 18] = [
    (&["telemetry", "events", "command-responses", "mqtt"], "Devices", "connect-http.md"),
    (&["lora"], "LoRaWAN network servers", "connect-lora.md"),
    (&["registry"], "Registry of devices", "connect-http.md"),
    (&["connections"], "Connected clients", "connect-http.md#connected-clients"),
    (&["commands"], "Commands to devices", "connect-commands.md"),
    (&["entities"], "Entities and subscriptions (NGSI-v2)", "context.md"),
    (&["history"], "History (NGSI-LD temporal)", "context-history.md"),
    (&["history-quantumleap"], "History (QuantumLeap)", "context-history.md"),
    (&["history-comet-v1", "history-comet-v2"], "History (STH-Comet)", "context-history.md"),
    (&["queries", "schema"], "Live queries", "query.md"),
    (&["jobs"], "Stream jobs", "flow.md"),
    (&["streams"], "Topics and records", "log.md"),
    (&["store"], "Keys", "store.md"),
    (&["rift"], "Keys for Rift's clients, with `store.rift = true`", "store.md"),
    (&["bullet"], "Queries for Bullet's clients", "query.md"),
    (&["tokens"], "API tokens", "configuration.md#tokens-made-while-the-server-runs"),
    (&["stats"], "Statistics", "store.md#statistics"),
    (&["health", "documentation"], "Health, metrics, documentation", "configuration.md"),
];

/// A parameter is told once for a section if so many of its routes have it.
const SHARED_FROM: usize = 3;

/// A method and path of one of the documents.
struct Operation<'a> {
    method: String,
    path: &'a str,
    declared: &'a Value,
}

type Section<'a> = Vec<Operation<'a>>;

fn sections(documents: &[Value]) -> BTreeMap<String, Section<'_>> {
    let mut found: BTreeMap<String, Section<'_>> = BTreeMap::new();
    for document in documents {
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, declared) in methods.as_object().unwrap() {
                let operation = Operation { method: method.to_uppercase(), path, declared };
                found.entry(declared["tags"][0].as_str().unwrap().to_owned()).or_default().push(operation);
            }
        }
    }
    // The names of its files change with each build.
    found.remove("console");
    found
}

fn page(documents: &[Value]) -> String {
    let mut page = HEAD.to_owned();
    push_common_answers(&documents[0], &mut page);
    let mut by_tag = sections(documents);
    for (tags, heading, link) in SECTIONS {
        let mut section: Section<'_> = tags.iter().flat_map(|tag| by_tag.remove(*tag).unwrap_or_default()).collect();
        // Both listeners have this route.
        section.dedup_by(|one, other| one.path == other.path && one.method == other.method);
        push_section(heading, &format!("More: [{link}]({link}).\n"), &section, &mut page);
    }
    for (tag, section) in &by_tag {
        push_section(&format!("Routes of `{tag}`"), "", section, &mut page);
    }
    page.push_str("\nThe console's pages and files are served to anybody at `/`, `/query`, `/entities`, `/jobs`, `/store` and `/assets/…`.\n");
    page
}

fn push_common_answers(document: &Value, page: &mut String) {
    page.push_str("| status | when |\n| --- | --- |\n");
    let responses = document["components"]["responses"].as_object().unwrap();
    let of_pipeline = responses.iter().filter_map(|(name, response)| {
        name.strip_prefix("Problem").map(|status| (status, text(&response["description"])))
    });
    let of_no_route = [
        ("404", "Nothing is served under this path."),
        ("405", "The path has no such method; `Allow` lists those it has."),
    ];
    for (status, when) in of_pipeline.chain(of_no_route).collect::<BTreeMap<_, _>>() {
        let _ = writeln!(page, "| {status} | {when} |");
    }
    page.push_str("\nRefusals are JSON:\n\n| where | media type | members |\n| --- | --- | --- |\n");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (schema, place) in [
        ("NgsiError", "`/v2`, `/version`, `/statistics`, `/cache`, `/admin`, `/log`"),
        ("NgsiLdError", "`/ngsi-ld`"),
        ("BulletError", "`/api/bullet`, `/drpc`"),
        ("Problem", "everywhere else, [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)"),
    ] {
        let media_type = document["components"]["responses"][format!("{schema}503")]["content"].as_object().unwrap();
        let media_type = media_type.keys().next().unwrap();
        let _ = writeln!(page, "| {place} | `{media_type}` | `{}` |", type_name(&schemas[schema]));
    }
    page.push_str(
        "\n429 and most of 503 carry `Retry-After`, in seconds; 401 carries `WWW-Authenticate`. A refusal of 503 or 500 may have taken\n\
         effect if its text says so; any other has not.\n",
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn push_section(heading: &str, more: &str, section: &Section<'_>, page: &mut String) {
    let _ = write!(page, "\n## {heading}\n\n{more}");
    let parameters = shared(section.iter().flat_map(Operation::parameters).map(key));
    if !parameters.is_empty() {
        page.push_str("\n| in | parameter of several routes | means |\n| --- | --- | --- |\n");
        for ((place, name), text) in &parameters {
            let _ = writeln!(page, "| {place} | `{name}` | {} |", text.replace('|', "\\|"));
        }
    }
    let refusals = shared(section.iter().flat_map(Operation::refusals));
    if !refusals.is_empty() {
        page.push_str("\n| status | answer of several routes |\n| --- | --- |\n");
        for ((status, _), text) in &refusals {
            let _ = writeln!(page, "| {status} | {text} |");
        }
    }
    for operation in section {
        operation.push(&parameters, &refusals, page);
    }
}

/// Texts that a section tells once, before its routes, by kind and name.
type Shared<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// The most frequent text of each name, if enough routes have it.
fn shared<'a>(all: impl Iterator<Item = ((&'a str, &'a str), &'a str)>) -> Shared<'a> {
    let mut counts: BTreeMap<((&str, &str), &str), usize> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    let mut found: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    for ((name, text), count) in counts {
        let best = found.entry(name).or_default();
        if count >= SHARED_FROM && count > best.0 {
            *best = (count, text);
        }
    }
    found.into_iter().filter(|(_, (count, _))| *count > 0).map(|(name, (_, text))| (name, text)).collect()
}

/// Place and name of a parameter, and its text.
fn key(parameter: &Value) -> ((&str, &str), &str) {
    ((text(&parameter["in"]), text(&parameter["name"])), text(&parameter["description"]))
}

impl<'a> Operation<'a> {
    fn parameters(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.declared["parameters"].as_array().into_iter().flatten()
    }

    /// Statuses and texts of the route's own refusals. Those of the pipeline are told once, for all routes.
    fn refusals(&self) -> impl Iterator<Item = ((&'a str, &'a str), &'a str)> + use<'a> {
        let own = self.declared["responses"].as_object().unwrap().iter();
        let own = own.filter(|(status, answer)| status.as_str() >= "400" && answer.get("$ref").is_none());
        own.map(|(status, answer)| ((status.as_str(), ""), text(&answer["description"])))
    }

    fn push(&self, parameters: &Shared<'_>, refusals: &Shared<'_>, page: &mut String) {
        let summary = text(&self.declared["summary"]);
        let _ = writeln!(page, "\n### {} {}\n\n*{}*: {summary}.\n", self.method, self.path, self.callers());
        let mut also = Vec::new();
        for parameter in self.parameters() {
            let ((place, name), means) = key(parameter);
            if parameters.get(&(place, name)) == Some(&means) {
                also.push(format!("`{name}`"));
                continue;
            }
            let required = if place == "query" && parameter["required"] == true { ", *required*" } else { "" };
            let _ = writeln!(page, "- {place} `{name}`{required}: {means}");
        }
        if !also.is_empty() {
            let _ = writeln!(page, "- also {}", also.join(", "));
        }
        self.push_body(page);
        self.push_answers(refusals, page);
    }

    fn callers(&self) -> String {
        let role = self.declared["x-role"].as_str().unwrap_or("anybody").replace(" in every", ", every");
        let limits = if self.declared["x-keeps-to-scope"] == true { ", limits" } else { "" };
        role + limits
    }

    fn push_body(&self, page: &mut String) {
        let Some(body) = self.declared.get("requestBody") else { return };
        let max_bytes = body["x-max-bytes"].as_u64().unwrap();
        let _ = writeln!(page, "- body of at most {}: {}", size(max_bytes), contents(&body["content"]));
    }

    fn push_answers(&self, refusals: &Shared<'_>, page: &mut String) {
        for (status, answer) in self.declared["responses"].as_object().unwrap() {
            if status.as_str() >= "400" {
                continue;
            }
            let content = contents(&answer["content"]);
            let content = if content.is_empty() { content } else { format!(" {content}") };
            let _ = writeln!(page, "- **{status}**{content}: {}", text(&answer["description"]));
        }
        let (told, own): (Vec<_>, Vec<_>) =
            self.refusals().partition(|(status, text)| refusals.get(status) == Some(text));
        for ((status, _), text) in own {
            let _ = writeln!(page, "- **{status}**: {text}");
        }
        if !told.is_empty() {
            let statuses: Vec<String> = told.iter().map(|((status, _), _)| format!("**{status}**")).collect();
            let _ = writeln!(page, "- also {}", statuses.join(", "));
        }
    }
}

/// Media types with the type of each body.
fn contents(content: &Value) -> String {
    let each = content.as_object().into_iter().flatten().map(|(media_type, body)| {
        let kind = type_name(&body["schema"]);
        let kind = if kind.starts_with('{') { format!("`{kind}`") } else { kind };
        match media_type.as_str() {
            "application/json" => format!("JSON {kind}").trim_end().to_owned(),
            "application/x-ndjson" => format!("lines of JSON {kind}").trim_end().to_owned(),
            "text/event-stream" => "server-sent events".to_owned(),
            "application/octet-stream" => "bytes".to_owned(),
            other => format!("`{other}`"),
        }
    });
    each.collect::<Vec<_>>().join(", or ")
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[test]
fn the_reference_page_is_as_the_documents_say() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "store.rift=true"]);
    let documents = [process.applications, process.devices].map(|listener| {
        let answer = ask(listener, "GET", "/openapi.json", &[], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    });
    let expected = page(&documents);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let command = "UPDATE_DOCS=1 cargo test -p millstream-server --test api page";
    assert!(found == expected, "docs/api.md is not as the routes say; '{command}' writes it anew");
    process.stop();
}
