//! `GET /kv/{bucket}`: the keys of a bucket in order.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use millstream_http::{Access, Caller, Content, Path, Problem, Route};
use millstream_types::Role;
use serde_json::json;

use super::key_line::{KeyLine, VALUE_SHOWN_MAX_BYTES, prefix_json};
use super::pages::{PIECE_BYTES, PIECE_KEYS, Pages, answer, next_line};
use super::problems::{bad_parameter, problem};
use super::query::{encoded, parameters};
use super::{BUCKET, READ_LIMITS};
use crate::key_merge::{KeyMerge, MergeStep, Selection};
use crate::{Bucket, Error, Store};

/// Keys of a page that names no limit.
const LIMIT: u64 = 1_000;
/// Most bytes of a delimiter.
const DELIMITER_MAX_BYTES: usize = 64;

pub(super) fn route(store: &Arc<Store>) -> Route {
    Route::get("/kv/{bucket}", Access::Role(Role::Reader), READ_LIMITS, "List keys in order")
        .param("bucket", BUCKET)
        .query("prefix", "Keys that begin with this only, percent-encoded.")
        .query("start", "The first key, percent-encoded; it need not be there.")
        .query("limit", "Most keys and common prefixes of the page. Default 1000.")
        .query("delimiter", "Keys that have this behind the prefix are given once, as their common prefix up to it.")
        .query("values", "`true`: with values of at most 64 KiB; larger ones are left out (`value_omitted`).")
        .answers_with(
            200,
            "A line for each key, in the order of the keys' bytes: `key` or `key_base64`, `version`, `length`, `written`, `expires`, `content_type`, `tags`; with values also `timestamp`, `metadata`, `value` or `value_base64`. A common prefix is `prefix` or `prefix_base64`. The last line has `next`: the target of the next page, or null. An answer without it was cut.",
            Content::ndjson(json!({"type": "object"})),
        )
        .answers(400, "A parameter cannot be taken.")
        .answers(404, "The bucket does not exist.")
        .to(list, Arc::clone(store))
}

/// The parameters of a listing.
#[derive(Debug)]
struct ListQuery {
    selection: Selection,
    limit: u64,
    with_values: bool,
}

impl ListQuery {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { selection: Selection::default(), limit: LIMIT, with_values: false };
        for parameter in parameters(query) {
            match &*parameter.name {
                "prefix" => asked.selection.prefix = parameter.bytes,
                "start" => asked.selection.start = parameter.bytes,
                "limit" => asked.limit = parameter.limit()?,
                "delimiter" if parameter.bytes.is_empty() => asked.selection.delimiter = None,
                "delimiter" if parameter.bytes.len() > DELIMITER_MAX_BYTES => {
                    return Err(bad_parameter("delimiter", &parameter.text(), "it has at most 64 bytes"));
                }
                "delimiter" => asked.selection.delimiter = Some(parameter.bytes),
                "values" => asked.with_values = parameter.switch()?,
                _ => return Err(parameter.unknown("this route takes prefix, start, limit, delimiter and values")),
            }
        }
        Ok(asked)
    }

    /// The target of the page that begins at `start`.
    fn next(&self, bucket: &str, start: &[u8]) -> String {
        let mut target = format!("/kv/{}?start={}", encoded(bucket.as_bytes()), encoded(start));
        if !self.selection.prefix.is_empty() {
            target += &format!("&prefix={}", encoded(&self.selection.prefix));
        }
        if let Some(delimiter) = &self.selection.delimiter {
            target += &format!("&delimiter={}", encoded(delimiter));
        }
        if self.with_values {
            target += "&values=true";
        }
        target + &format!("&limit={}", self.limit)
    }
}

async fn list(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
    let asked = ListQuery::read(query.as_deref())?;
    let merge = KeyMerge::new(bucket.partitions().len() as u32, asked.selection.clone());
    let left = asked.limit;
    answer(Listing { bucket, name, asked, merge, left }).await
}

struct Listing {
    bucket: Arc<Bucket>,
    name: String,
    asked: ListQuery,
    merge: KeyMerge,
    /// Keys and prefixes that the page may still have.
    left: u64,
}

impl Pages for Listing {
    fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    fn piece(&mut self, lines: &mut String) -> Result<bool, Error> {
        let now_ms = self.bucket.now_ms();
        for _ in 0..PIECE_KEYS {
            let line = match self.merge.step(&*self.bucket, now_ms)? {
                MergeStep::PassedOver => return Ok(true),
                MergeStep::End => {
                    lines.push_str(&next_line(None));
                    return Ok(false);
                }
                MergeStep::Key(start, _) | MergeStep::Prefix(start) if self.left == 0 => {
                    lines.push_str(&next_line(Some(self.asked.next(&self.name, &start))));
                    return Ok(false);
                }
                MergeStep::Prefix(prefix) => prefix_json(&prefix),
                MergeStep::Key(key, listed) if !self.asked.with_values => KeyLine::of_listed(&key, &listed).json(),
                MergeStep::Key(key, _) => match self.bucket.read_blocking(&key)? {
                    Some(found) => KeyLine::of_stored(&key, &found.stored, Some(found.version))
                        .with_value(&found.stored, VALUE_SHOWN_MAX_BYTES)
                        .json(),
                    // It was deleted since the listing came by.
                    None => continue,
                },
            };
            self.left -= 1;
            lines.push_str(&line);
            lines.push('\n');
            if lines.len() >= PIECE_BYTES {
                break;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_the_next_page_asks_for_the_same() {
        let asked = ListQuery::read(Some("prefix=a%20b/&start=x&limit=7&delimiter=/&values=true")).unwrap();
        assert_eq!(asked.selection.prefix, b"a b/");
        let next = asked.next("things", b"a b/\xff");
        assert_eq!(next, "/kv/things?start=a%20b/%FF&prefix=a%20b/&delimiter=/&values=true&limit=7");
        let again = ListQuery::read(next.split_once('?').map(|(_, query)| query)).unwrap();
        assert_eq!(again.selection.start, b"a b/\xff");
        assert_eq!((again.limit, again.with_values, again.selection.prefix), (7, true, b"a b/".to_vec()));
    }

    #[test]
    fn parameters_that_cannot_be_taken_are_refused_with_their_rule() {
        for (query, rule) in [
            ("limit=0", "a number from 1 on"),
            ("limit=many", "a number from 1 on"),
            ("values=perhaps", "true or false"),
            ("prefx=a", "prefix, start, limit, delimiter and values"),
            (&format!("delimiter={}", "x".repeat(65)), "at most 64 bytes"),
        ] {
            let refused = ListQuery::read(Some(query)).unwrap_err();
            assert!(refused.text().contains(rule), "{query}: {}", refused.text());
        }
    }
}
