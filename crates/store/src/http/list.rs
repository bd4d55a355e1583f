//! `GET /kv/{bucket}`: the keys of a bucket in order.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use millstream_http::{Access, Caller, Path, Problem, Route};
use millstream_types::{PartitionId, Role, TenantId};

use super::key_line::{KeyLine, VALUE_SHOWN_MAX_BYTES, prefix_json};
use super::pages::{PIECE_BYTES, PIECE_KEYS, PageQuery, Pages, answer, next_line};
use super::problems::{bad_parameter, problem};
use super::query::{encoded, parameters};
use super::scope::check_key_scope;
use super::{BUCKET, READ_LIMITS};
use crate::cached_keys::CachedKeys;
use crate::key_merge::{KeyMerge, KeySource, MergeStep, Selection};
use crate::{Bucket, Error, Listed, Opened, Store, StoredValue};

/// Most bytes of a delimiter.
const DELIMITER_MAX_BYTES: usize = 64;

pub(super) fn route(store: &Arc<Store>) -> Route {
    let draft = Route::get("/kv/{bucket}", Access::Role(Role::Reader), READ_LIMITS, "List keys in order")
        .param("bucket", BUCKET)
        .keeps_to_scope()
        .query("prefix", "Keys that begin with this only, percent-encoded.")
        .query("start", "The first key, percent-encoded; it need not be there.")
        .query("delimiter", "Keys that have this behind the prefix are given once, as their common prefix up to it.");
    let lines = "A line for each key, in the order of the keys' bytes: `key` or `key_base64`, `version`, `length`, \
                 `written` (not of a cache), `expires`, `content_type`, `tags`; with values also `timestamp`, `metadata`, \
                 `value` or `value_base64`. A common prefix is `prefix` or `prefix_base64`. The last line has \
                 `next`: the target of the next page, or null. An answer without it was cut.";
    PageQuery::describe(draft, lines).to(list, Arc::clone(store))
}

/// The parameters of a listing.
#[derive(Debug)]
struct ListQuery {
    selection: Selection,
    page: PageQuery,
}

impl ListQuery {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { selection: Selection::default(), page: PageQuery::default() };
        for parameter in parameters(query) {
            match &*parameter.name {
                "prefix" => asked.selection.prefix = parameter.bytes,
                "start" => asked.selection.start = parameter.bytes,
                "delimiter" if parameter.bytes.is_empty() => asked.selection.delimiter = None,
                "delimiter" if parameter.bytes.len() > DELIMITER_MAX_BYTES => {
                    return Err(bad_parameter("delimiter", &parameter.text(), "it has at most 64 bytes"));
                }
                "delimiter" => asked.selection.delimiter = Some(parameter.bytes),
                _ if asked.page.take(&parameter)? => {}
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
        self.page.added_to(&target)
    }
}

async fn list(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let asked = ListQuery::read(query.as_deref())?;
    check_key_scope(caller.principal(), &name, &asked.selection.prefix)?;
    let opened = store.find(&caller.tenant, &name).map_err(|error| problem(&error))?;
    let keys = match opened {
        Opened::Durable(bucket) => ListedKeys::Durable(bucket),
        Opened::Cache(bucket) => {
            let limit = asked.selection.delimiter.is_none().then_some(asked.page.limit);
            ListedKeys::Cache(CachedKeys::new(bucket, &asked.selection.prefix, limit))
        }
    };
    let merge = KeyMerge::new(keys.partitions(), asked.selection.clone());
    let left = asked.page.limit;
    answer(store, Listing { tenant: caller.tenant.clone(), keys, name, asked, merge, left }).await
}

/// The keys of a bucket of either kind.
enum ListedKeys {
    Durable(Arc<Bucket>),
    Cache(CachedKeys),
}

impl KeySource for ListedKeys {
    fn list_keys(
        &self,
        partition: PartitionId,
        start: &[u8],
        visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        match self {
            Self::Durable(bucket) => bucket.list_keys(partition, start, visit),
            Self::Cache(keys) => keys.list_keys(partition, start, visit),
        }
    }
}

impl ListedKeys {
    fn partitions(&self) -> u32 {
        match self {
            Self::Durable(bucket) => bucket.partitions().len() as u32,
            Self::Cache(_) => 1,
        }
    }

    fn now_ms(&self) -> i64 {
        match self {
            Self::Durable(bucket) => bucket.now_ms(),
            Self::Cache(keys) => keys.bucket().now_ms(),
        }
    }

    /// The line of a key.
    fn line(&self, key: &[u8], listed: &Listed) -> String {
        let line = KeyLine::of_listed(key, listed);
        match self {
            Self::Durable(_) => line.json(),
            Self::Cache(_) => line.untimed().json(),
        }
    }

    /// The line of a key with its value; `None` if it was deleted since the listing came by.
    fn line_with_value(&self, key: &[u8]) -> Result<Option<String>, Error> {
        let shown = |stored: &StoredValue, version| -> String {
            let line = KeyLine::of_stored(key, stored, Some(version)).with_value(stored, VALUE_SHOWN_MAX_BYTES);
            if matches!(self, Self::Cache(_)) { line.untimed().json() } else { line.json() }
        };
        Ok(match self {
            Self::Durable(bucket) => bucket.read_blocking(key)?.map(|found| shown(&found.stored, found.version)),
            Self::Cache(keys) => keys
                .bucket()
                .cache()
                .peek(key)
                .map(|(value, version)| shown(&StoredValue { value, large: None, written_ms: 0 }, version)),
        })
    }
}

struct Listing {
    tenant: TenantId,
    keys: ListedKeys,
    name: String,
    asked: ListQuery,
    merge: KeyMerge,
    /// Keys and prefixes that the page may still have.
    left: u64,
}

impl Pages for Listing {
    fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    fn piece(&mut self, lines: &mut String) -> Result<bool, Error> {
        let now_ms = self.keys.now_ms();
        for _ in 0..PIECE_KEYS {
            let line = match self.merge.step(&self.keys, now_ms)? {
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
                MergeStep::Key(key, listed) if !self.asked.page.with_values => self.keys.line(&key, &listed),
                MergeStep::Key(key, _) => match self.keys.line_with_value(&key)? {
                    Some(line) => line,
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
        assert_eq!((again.page, again.selection.prefix), (asked.page, b"a b/".to_vec()));
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
