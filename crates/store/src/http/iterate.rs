//! `GET /kv/{bucket}/_iterate`: the keys by the time of their last write, as the log has them.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use millstream_http::{Access, Caller, Path, Problem, Route};
use millstream_log::{Partition, UpTo};
use millstream_types::{Offset, PartitionId, PartitionOffsets, RecordView, Role, TenantId};

use super::key_line::{KeyLine, VALUE_SHOWN_MAX_BYTES};
use super::pages::{PIECE_BYTES, PIECE_KEYS, PageQuery, Pages, answer, next_line};
use super::parameters::time_ms;
use super::problems::{bad_parameter, problem};
use super::query::{encoded, parameters};
use super::records::{change, readable, undecodable};
use super::scope::check_key_scope;
use super::{BUCKET, READ_LIMITS};
use crate::{Bucket, Error, Store};

/// Bytes of one read from the log.
const READ_BYTES: usize = 64 << 10;

pub(super) fn route(store: &Arc<Store>) -> Route {
    let draft = Route::get(
        "/kv/{bucket}/_iterate",
        Access::Role(Role::Reader),
        READ_LIMITS,
        "List keys by the time of their write",
    )
    .param("bucket", BUCKET)
    .keeps_to_scope()
    .query("ts_from", "Keys that were written at this time or later. ISO 8601 or milliseconds.")
    .query("ts_to", "Keys that were written before this time. ISO 8601 or milliseconds.")
    .query("from", "The place at which to begin, such as `0:17`: partition 0, offset 17.");
    let lines = "A line for each key that is there, by partition and offset, as in a listing and with `partition`; `version` \
                 is the offset. The last line has `next`: the target of the next page, or null. An answer without it was \
                 cut.";
    PageQuery::describe(draft, lines).to(iterate, Arc::clone(store))
}

/// The parameters of an iteration.
#[derive(Debug)]
struct IterateQuery {
    from_ms: Option<i64>,
    to_ms: Option<i64>,
    from: Option<(u32, u64)>,
    page: PageQuery,
}

impl IterateQuery {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self { from_ms: None, to_ms: None, from: None, page: PageQuery::default() };
        for parameter in parameters(query) {
            let text = parameter.text();
            match &*parameter.name {
                "ts_from" => asked.from_ms = Some(time_ms("ts_from", &text)?),
                "ts_to" => asked.to_ms = Some(time_ms("ts_to", &text)?),
                "from" => {
                    let mut pairs = text.parse().unwrap_or_else(|_| PartitionOffsets::default()).0.into_iter();
                    let (Some((partition, offset)), None) = (pairs.next(), pairs.next()) else {
                        return Err(bad_parameter("from", &text, "it is one partition:offset pair such as 0:17"));
                    };
                    asked.from = Some((partition, offset.0));
                }
                _ if asked.page.take(&parameter)? => {}
                _ => return Err(parameter.unknown("this route takes ts_from, ts_to, from, limit and values")),
            }
        }
        Ok(asked)
    }

    fn covers(&self, written_ms: i64) -> bool {
        self.from_ms.is_none_or(|from_ms| written_ms >= from_ms) && self.to_ms.is_none_or(|to_ms| written_ms < to_ms)
    }

    /// The target of the page that begins at an offset of a partition.
    fn next(&self, bucket: &str, partition: u32, offset: u64) -> String {
        let mut target = format!("/kv/{}/_iterate?from={partition}:{offset}", encoded(bucket.as_bytes()));
        for (name, time_ms) in [("ts_from", self.from_ms), ("ts_to", self.to_ms)] {
            if let Some(time_ms) = time_ms {
                target += &format!("&{name}={time_ms}");
            }
        }
        self.page.added_to(&target)
    }
}

async fn iterate(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    // An iteration has no prefix, so the caller must have all keys.
    check_key_scope(caller.principal(), &name, b"")?;
    let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
    let asked = IterateQuery::read(query.as_deref())?;
    let ends: Vec<u64> = bucket.partitions().iter().map(|partition| partition.offsets().tail.0).collect();
    let (partition, next) = match asked.from {
        Some((partition, _)) if partition as usize >= ends.len() => {
            let rule = "the bucket has no such partition; see 'partitions' of the bucket";
            return Err(bad_parameter("from", &partition.to_string(), rule));
        }
        Some((partition, offset)) => (partition, Some(offset)),
        None => (0, None),
    };
    let left = asked.page.limit;
    answer(store, Iteration { bucket, name, asked, ends, partition, next, left }).await
}

struct Iteration {
    bucket: Arc<Bucket>,
    name: String,
    asked: IterateQuery,
    /// The ends of the partitions when it began.
    ends: Vec<u64>,
    partition: u32,
    /// The next offset; `None` until the first one of the partition is found.
    next: Option<u64>,
    left: u64,
}

impl Pages for Iteration {
    fn tenant(&self) -> &TenantId {
        self.bucket.topic().tenant()
    }

    fn piece(&mut self, lines: &mut String) -> Result<bool, Error> {
        let mut visited = 0;
        while visited < PIECE_KEYS && lines.len() < PIECE_BYTES {
            let Some(end) = self.ends.get(self.partition as usize).copied() else {
                lines.push_str(&next_line(None));
                return Ok(false);
            };
            let next = match self.next {
                Some(next) => next,
                None => self.first()?.unwrap_or(end),
            };
            self.next = Some(next);
            if next >= end {
                (self.partition, self.next) = (self.partition + 1, None);
                continue;
            }
            if !self.read(next, end, lines, &mut visited)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Iteration {
    /// The first offset of the partition that can be asked for.
    fn first(&self) -> Result<Option<u64>, Error> {
        let log = &self.bucket.partitions()[self.partition as usize];
        match self.asked.from_ms {
            Some(from_ms) => Ok(log.offset_at(from_ms)?.map(|offset| offset.0)),
            None => Ok(Some(log.offsets().first.0)),
        }
    }

    /// Reads on at `next`. Returns `false` if the page is complete.
    fn read(&mut self, next: u64, end: u64, lines: &mut String, visited: &mut usize) -> Result<bool, Error> {
        let log = Arc::clone(&self.bucket.partitions()[self.partition as usize]);
        let batches = match log.read(Offset(next), READ_BYTES, UpTo::Tail) {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                self.next = Some(oldest.0);
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        if batches.is_empty() {
            self.next = Some(end);
        }
        for batch in batches {
            let readable = readable(&*log, &batch)?;
            for record in readable.iter().flat_map(|batch| batch.records()) {
                let record = record.map_err(|source| undecodable(&*log, source))?;
                let offset = record.offset.0;
                if offset < self.next.unwrap_or(next) {
                    continue;
                }
                if offset >= end {
                    break;
                }
                if let Some(line) = self.line(&*log, &record)? {
                    if self.left == 0 {
                        let target = self.asked.next(&self.name, self.partition, offset);
                        lines.push_str(&next_line(Some(target)));
                        return Ok(false);
                    }
                    self.left -= 1;
                    lines.push_str(&line);
                    lines.push('\n');
                }
                self.next = Some(offset + 1);
                *visited += 1;
                if *visited >= PIECE_KEYS || lines.len() >= PIECE_BYTES {
                    return Ok(true);
                }
            }
            // The batch may end with offsets that have no records.
            self.next = Some(batch.next_offset().0.max(self.next.unwrap_or(next)));
        }
        Ok(true)
    }

    /// The line of a record, if it is the newest of its key and was asked for.
    fn line(&self, log: &dyn Partition, record: &RecordView<'_>) -> Result<Option<String>, Error> {
        let is_live = |key| self.bucket.is_live(PartitionId(self.partition), key, record.offset.0);
        if !self.asked.covers(record.timestamp_ms) || !record.key.is_some_and(is_live) {
            return Ok(None);
        }
        let Some((key, Some(stored))) = change(log, record)? else { return Ok(None) };
        let line = KeyLine::of_stored(key, &stored, None).at(self.partition, record.offset.0);
        let shown = if self.asked.page.with_values { line.with_value(&stored, VALUE_SHOWN_MAX_BYTES) } else { line };
        Ok(Some(shown.json()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_the_next_page_asks_for_the_same() {
        let asked = IterateQuery::read(Some("ts_from=1970-01-01T00:00:01Z&ts_to=2000&limit=7&values=true")).unwrap();
        assert!(!asked.covers(999) && asked.covers(1_000) && asked.covers(1_999) && !asked.covers(2_000));
        let next = asked.next("things", 2, 17);
        assert_eq!(next, "/kv/things/_iterate?from=2:17&ts_from=1000&ts_to=2000&values=true&limit=7");
        let again = IterateQuery::read(next.split_once('?').map(|(_, query)| query)).unwrap();
        assert_eq!((again.from, again.page), (Some((2, 17)), PageQuery { limit: 7, with_values: true }));
    }

    #[test]
    fn parameters_that_cannot_be_taken_are_refused_with_their_rule() {
        for (query, rule) in [
            ("ts_from=yesterday", "ISO 8601 or milliseconds"),
            ("from=latest", "one partition:offset pair"),
            ("from=0:1,1:2", "one partition:offset pair"),
            ("prefix=a", "ts_from, ts_to, from, limit and values"),
        ] {
            let refused = IterateQuery::read(Some(query)).unwrap_err();
            assert!(refused.text().contains(rule), "{query}: {}", refused.text());
        }
    }
}
