//! Long answers of NDJSON, made a piece at a time on the reading threads while the client takes them.
//!
//! A piece is bounded in bytes and in keys passed over, and the next is begun when the client has taken it. So a long
//! answer takes constant memory, and each piece gives its thread back to the reads that wait. The last line of a
//! complete answer is `{"next": …}`, or an `{"error": …}`; an answer without it was cut.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use millstream_http::{Content, Problem, RouteDraft};
use millstream_types::TenantId;
use serde_json::{Value, json};

use super::NEEDS_DURABLE;
use super::problems::problem;
use super::query::Parameter;
use crate::{Error, Store};

/// Bytes after which a piece ends.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Keys or records after which a piece ends, shown or passed over.
pub(super) const PIECE_KEYS: usize = 1_024;

/// Keys of a page that names no limit.
const LIMIT: u64 = 1_000;

/// The parameters that routes with pages have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageQuery {
    /// Most lines of the page.
    pub(super) limit: u64,
    pub(super) with_values: bool,
}

impl Default for PageQuery {
    fn default() -> Self {
        Self { limit: LIMIT, with_values: false }
    }
}

impl PageQuery {
    /// Takes a parameter. Returns `false` if it is none of these.
    pub(super) fn take(&mut self, parameter: &Parameter<'_>) -> Result<bool, Problem> {
        match &*parameter.name {
            "limit" => self.limit = parameter.limit()?,
            "values" => self.with_values = parameter.switch()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The target of another page, which has a query already, with these parameters.
    pub(super) fn added_to(&self, target: &str) -> String {
        let values = if self.with_values { "&values=true" } else { "" };
        format!("{target}{values}&limit={}", self.limit)
    }

    /// Describes the parameters and the answer of a route, of which `lines` tells the lines.
    pub(super) fn describe(draft: RouteDraft, lines: &'static str) -> RouteDraft {
        draft
            .query("limit", "Most lines of the page before the last. Default 1000.")
            .query("values", "`true`: with values of at most 64 KiB; larger ones are left out (`value_omitted`).")
            .answers_with(200, lines, Content::ndjson(json!({"type": "object"})))
            .answers(400, "A parameter cannot be taken.")
            .answers(404, "The bucket does not exist.")
            .answers(409, NEEDS_DURABLE)
    }
}

/// An answer that is made piece by piece.
pub(super) trait Pages: Send + 'static {
    /// The tenant that asks for it.
    fn tenant(&self) -> &TenantId;

    /// Adds the next piece to `lines`, or the last line. Returns `false` when the answer is complete. It may block.
    fn piece(&mut self, lines: &mut String) -> Result<bool, Error>;
}

/// Answers with all pieces. What fails before the first is a refusal.
pub(super) async fn answer<P: Pages>(store: Arc<Store>, pages: P) -> Result<Response, Problem> {
    let (first, pages) = next(&store, pages).await.map_err(|error| problem(&error))?;
    let pieces = stream::unfold((Some(first), pages, store), |(ready, pages, store)| async move {
        let (piece, pages) = match (ready, pages) {
            (Some(piece), pages) => (piece, pages),
            (None, Some(pages)) => next(&store, pages).await.unwrap_or_else(|error| (error_line(&error), None)),
            (None, None) => return None,
        };
        Some((Ok::<_, Infallible>(piece), (None, pages, store)))
    });
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The next piece that is not empty, and the rest of the answer if it is not complete.
async fn next<P: Pages>(store: &Store, mut pages: P) -> Result<(Bytes, Option<P>), Error> {
    let tenant = pages.tenant().clone();
    loop {
        let work = move || {
            let mut lines = String::new();
            let goes_on = pages.piece(&mut lines);
            (pages, lines, goes_on)
        };
        let (made, lines, goes_on) = store.on_reader(&tenant, work).await?;
        match goes_on? {
            false => return Ok((lines.into(), None)),
            true if !lines.is_empty() => return Ok((lines.into(), Some(made))),
            true => pages = made,
        }
    }
}

fn error_line(error: &Error) -> Bytes {
    format!("{}\n", Value::from_iter([("error", problem(error).text())])).into()
}

/// The last line: the target of the next page, or null if there is none.
pub(super) fn next_line(target: Option<String>) -> String {
    format!("{}\n", Value::from_iter([("next", target)]))
}
