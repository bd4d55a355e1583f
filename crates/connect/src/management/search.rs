//! Search over tenants and the devices of a tenant: filters, sorts and pages the matches.
//!
//! A search works on snapshots and delays no change. A background thread does a search over many resources.

use std::cmp::Ordering;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use millstream_http::{AnswerMemory, Json, Problem, Reason, RouteDraft};
use millstream_types::{ErrorCode, TenantId};
use serde_json::{Value, json};

use super::condition::{FieldFilter, SortField, bad, compare};
use super::{Answered, Management};

pub(super) const PAGE_SIZE_DEFAULT: usize = 30;
pub(super) const PAGE_SIZE_MAX: usize = 200;
/// Resources that are looked at where they are asked for; more go to the background.
const SMALL_MAX: usize = 256;
/// Approximate memory of a candidate in a sorted list, without its fields.
const CANDIDATE_BYTES: usize = 96;

/// The filters, order and page of a search.
#[derive(Debug, PartialEq)]
pub(super) struct Search {
    size: usize,
    offset: usize,
    filters: Vec<FieldFilter>,
    orders: Vec<SortField>,
    pub(super) is_gateway: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Tenants,
    Devices,
}

/// A resource that may match: its id, and itself as JSON with its id, made when it is needed.
pub(super) struct SearchItem<'a, F> {
    pub(super) id: &'a str,
    pub(super) shown: F,
}

struct Candidate<'a, F> {
    item: SearchItem<'a, F>,
    /// The fields that are sorted by.
    keys: Vec<Option<Value>>,
}

/// A page, and how many match in all.
#[derive(Debug)]
pub(super) struct SearchPage {
    total: usize,
    result: Vec<Value>,
    memory: AnswerMemory,
}

/// Describes the parameters of a search in the API description.
pub(super) fn documented(route: RouteDraft) -> RouteDraft {
    route
        .query("pageSize", "Results on a page, 0 to 200; 30 if left out.")
        .query("pageOffset", "Results to pass over; 0 if left out.")
        .query("filterJson", "{field: JSON pointer, op: eq, value}; * and ? stand for any characters and for one. May be repeated; all must match.")
        .query("sortJson", "{field: JSON pointer, direction: asc or desc}. May be repeated; the first goes before.")
        .answers(404, "Nothing matches.")
}

impl Search {
    /// Reads the parameters of a query.
    pub(super) fn read(query: Vec<(String, String)>, of: Of) -> Result<Self, Problem> {
        let (size, offset) = (PAGE_SIZE_DEFAULT, 0);
        let mut search = Self { size, offset, filters: Vec::new(), orders: Vec::new(), is_gateway: None };
        for (name, value) in query {
            match (name.as_str(), of) {
                ("pageSize", _) => search.size = number(&name, &value, PAGE_SIZE_MAX)?,
                ("pageOffset", _) => search.offset = number(&name, &value, usize::MAX)?,
                ("filterJson", _) => search.filters.push(FieldFilter::parse(&value)?),
                ("sortJson", _) => search.orders.push(SortField::parse(&value)?),
                ("isGateway", Of::Devices) => search.is_gateway = Some(truth(&name, &value)?),
                _ => {
                    return Err(bad("a search has no such parameter", &name)
                        .rule("pageSize, pageOffset, filterJson, sortJson, and for devices isGateway")
                        .remedy("leave it out"));
                }
            }
        }
        Ok(search)
    }

    pub(super) fn find<'a, F: Fn() -> Result<Value, Problem>>(
        &self,
        items: impl Iterator<Item = SearchItem<'a, F>>,
        mut memory: AnswerMemory,
    ) -> Result<SearchPage, Problem> {
        let mut candidates = Vec::new();
        let mut taken_bytes = 0;
        for item in items {
            if let Some(keys) = self.keys(&item)? {
                taken_bytes += CANDIDATE_BYTES + keys.iter().flatten().map(size_bytes).sum::<usize>();
                memory.cover(taken_bytes)?;
                candidates.push(Candidate { item, keys });
            }
        }
        // The id decides in the end, so that pages fit together.
        candidates.sort_unstable_by(|a, b| self.order(&a.keys, &b.keys).then_with(|| a.item.id.cmp(b.item.id)));
        let page = candidates.iter().skip(self.offset).take(self.size);
        let result = page.map(|candidate| (candidate.item.shown)()).collect::<Result<_, _>>()?;
        Ok(SearchPage { total: candidates.len(), result, memory })
    }

    /// The fields that `item` is sorted by, if it matches.
    fn keys<F: Fn() -> Result<Value, Problem>>(
        &self,
        item: &SearchItem<'_, F>,
    ) -> Result<Option<Vec<Option<Value>>>, Problem> {
        if self.filters.is_empty() && self.orders.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let shown = (item.shown)()?;
        if !self.filters.iter().all(|filter| filter.matches(&shown)) {
            return Ok(None);
        }
        Ok(Some(self.orders.iter().map(|order| shown.pointer(&order.field).cloned()).collect()))
    }

    fn order(&self, a: &[Option<Value>], b: &[Option<Value>]) -> Ordering {
        let each = self.orders.iter().zip(a.iter().zip(b));
        each.map(|(order, (a, b))| compare(a.as_ref(), b.as_ref(), order.direction))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl SearchPage {
    /// The answer; a refusal if nothing matches.
    pub(super) fn answer(self) -> Answered {
        if self.total == 0 {
            return Err(Problem::new(Reason::Code(ErrorCode::NotFound), "nothing matches")
                .value("0 results")
                .rule("a search without result is answered 404")
                .remedy("ask with fewer or wider filters"));
        }
        let mut response: Response = Json(json!({"total": self.total, "result": self.result})).into_response();
        self.memory.hold_for(&mut response);
        Ok(response)
    }
}

impl Management {
    /// Searches among `count` resources.
    pub(super) async fn search(
        &self,
        tenant: Option<&TenantId>,
        count: usize,
        search: impl FnOnce() -> Result<SearchPage, Problem> + Send + 'static,
    ) -> Answered {
        self.in_background(tenant, count, search).await?.answer()
    }

    /// Does work over `count` resources: at once if there are few, else on a background thread.
    pub(super) async fn in_background<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
        count: usize,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if count <= SMALL_MAX {
            return work();
        }
        let done = self.0.background.submit(tenant, work).map_err(|full| {
            Problem::from_error(ErrorCode::Overloaded, &full)
                .value(full.waiting)
                .rule(format!("connect.searches_max_waiting = {}", full.limit))
                .remedy("ask again later")
                .retry_after(Duration::from_secs(1))
        })?;
        done.await.unwrap_or_else(|_| Err(Problem::internal("the threads that search have ended")))
    }
}

fn size_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => size_of::<Value>() + text.len(),
        Value::Array(_) | Value::Object(_) => size_of::<Value>() + value.to_string().len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
    }
}

pub(super) fn number(name: &str, given: &str, max: usize) -> Result<usize, Problem> {
    given.parse().ok().filter(|number| *number <= max).ok_or_else(|| {
        let rule = if max == usize::MAX { format!("{name} is 0 or more") } else { format!("{name} is 0 to {max}") };
        bad("a number of the search is out of its bounds", given).rule(rule).remedy("send such a whole number")
    })
}

fn truth(name: &str, given: &str) -> Result<bool, Problem> {
    given.parse().map_err(|_| {
        bad("a parameter of the search is no truth value", given)
            .rule(format!("{name} is true or false"))
            .remedy("send one of them")
    })
}
