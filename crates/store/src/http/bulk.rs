//! `POST /kv/{bucket}/_bulk`: many reads and writes in one request, each with an outcome of its own.
//!
//! The items of a partition go to its owner in order, in few transactions; partitions run side by side. So the
//! items of one key take effect in order, and one append serves many. Nothing is promised across items: some
//! may succeed and others not. Several writes of one key may become one record with the last value; then they
//! have its version in common. Reads that no write goes with are served beside the owner.

mod item;
mod outcome;
mod reads;
mod run;

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Caller, Content, Limits, Path, Payload, Problem, Route};
use millstream_log::AckLevel;
use millstream_types::Role;
use serde_json::json;

use self::item::BulkItem;
use super::problems::{bad_parameter, problem};
use super::query::parameters;
use super::scope::check_key_scope;
use super::{BUCKET, NEEDS_DURABLE, TIMEOUT};
use crate::{Ack, Store};

/// Most lines of a request.
const LINES_MAX: usize = 10_000;
const BULK_LIMITS: Limits =
    Limits { body_max_bytes: 8 << 20, body_max_setting: "none: send the lines in several requests", timeout: TIMEOUT };

pub(super) fn route(store: &Arc<Store>) -> Route {
    let line = json!({
        "type": "object",
        "required": ["op"],
        "properties": {
            "op": {"enum": ["get", "put", "delete"]},
            "key": {"type": "string"}, "key_base64": {"type": "string"},
            "value": {"type": "string"}, "value_base64": {"type": "string"},
            "ttl": {"type": ["string", "integer"]}, "expires": {"type": ["string", "integer"]},
            "content_type": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
            "metadata": {"type": "object"}, "timestamp": {"type": ["string", "integer"]},
            "version": {"type": "integer"}, "create": {"type": "boolean"},
        },
    });
    Route::post("/kv/{bucket}/_bulk", Access::Role(Role::Writer), BULK_LIMITS, "Read and write many keys")
        .param("bucket", BUCKET)
        .keeps_to_scope()
        .query("ack", "`memory`, `written`, `synced` or `all`; the default is the bucket's.")
        .takes(Content::ndjson(line))
        .answers_with(
            200,
            "A line for each line of the body that is not empty, in order: `line`, `status` (as the route of a single key answers), and `version`, the members of a listing (get), or `error`.",
            Content::ndjson(json!({"type": "object"})),
        )
        .answers(400, "A parameter cannot be taken, or there are too many lines. Nothing is done.")
        .answers(404, "The bucket does not exist.")
        .answers(409, NEEDS_DURABLE)
        .to(bulk, Arc::clone(store))
}

async fn bulk(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
    let level = level(query.as_deref())?;
    let check = |key: &[u8]| {
        check_key_scope(caller.principal(), &name, key)?;
        bucket.check_key(key).map_err(|error| problem(&error))
    };
    let items = parse(&body, check)?;
    let answers = run::run(&bucket, items, level).await;
    Ok(([(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")], answers).into_response())
}

fn level(query: Option<&str>) -> Result<Option<AckLevel>, Problem> {
    let mut level = None;
    for parameter in parameters(query) {
        if parameter.name != "ack" {
            return Err(parameter.unknown("this route takes ack"));
        }
        let text = parameter.text();
        let ack = Ack::parse(&text).ok_or_else(|| {
            bad_parameter("ack", &text, "it is memory, written, synced or all")
                .remedy("leave it out for the bucket's own level")
        })?;
        level = Some(ack.into());
    }
    Ok(level)
}

/// A line of the body by its number, counted from 1.
type NumberedItem = (usize, Result<BulkItem, Problem>);

/// Parses the lines of a body. What is wrong with one is its own outcome.
fn parse(body: &[u8], check_key: impl Fn(&[u8]) -> Result<(), Problem>) -> Result<Vec<NumberedItem>, Problem> {
    let lines = body.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let mut items = Vec::new();
    for (at, line) in filled {
        if items.len() == LINES_MAX {
            return Err(Problem::invalid(format!("more than {LINES_MAX} lines in one request"))
                .value(format!("line {}", at + 1))
                .rule(format!("a request has at most {LINES_MAX}"))
                .remedy("send them in several requests"));
        }
        let item = BulkItem::parse(line).and_then(|item| check_key(&item.key).map(|()| item));
        items.push((at + 1, item));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_told_by_its_number_and_the_others_are_taken() {
        let body = b"{\"op\":\"get\",\"key\":\"a\"}\n\nnonsense\r\n{\"op\":\"delete\",\"key\":\"b\"}";
        let lines = parse(body, |_| Ok(())).unwrap();
        let shown: Vec<(usize, bool)> = lines.iter().map(|(line, item)| (*line, item.is_ok())).collect();
        assert_eq!(shown, [(1, true), (3, false), (4, true)]);
        let most = "{}\n".repeat(LINES_MAX);
        assert_eq!(parse(most.as_bytes(), |_| Ok(())).unwrap().len(), LINES_MAX);
        let refused = parse((most + "{}\n").as_bytes(), |_| Ok(())).unwrap_err();
        assert!(refused.text().contains("line 10001"), "{}", refused.text());
    }

    #[test]
    fn the_level_is_checked() {
        assert!(level(None).unwrap().is_none());
        assert!(matches!(level(Some("ack=written")), Ok(Some(AckLevel::Written))));
        for query in ["ack=maybe", "ttl=1"] {
            assert!(level(Some(query)).is_err(), "{query}");
        }
    }
}
