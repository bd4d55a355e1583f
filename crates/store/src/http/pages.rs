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
use millstream_http::Problem;
use serde_json::Value;

use super::problems::problem;
use crate::{Bucket, Error};

/// Bytes after which a piece ends.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Keys or records after which a piece ends, shown or passed over.
pub(super) const PIECE_KEYS: usize = 1_024;

/// An answer that is made piece by piece.
pub(super) trait Pages: Send + 'static {
    /// The bucket that it reads.
    fn bucket(&self) -> &Arc<Bucket>;

    /// Adds the next piece to `lines`, or the last line. Returns `false` when the answer is complete.
    fn piece(&mut self, lines: &mut String) -> Result<bool, Error>;
}

/// Answers with all pieces. What fails before the first is a refusal.
pub(super) async fn answer<P: Pages>(pages: P) -> Result<Response, Problem> {
    let (first, pages) = next(pages).await.map_err(|error| problem(&error))?;
    let pieces = stream::unfold((Some(first), pages), |(ready, pages)| async move {
        let (piece, pages) = match (ready, pages) {
            (Some(piece), pages) => (piece, pages),
            (None, Some(pages)) => next(pages).await.unwrap_or_else(|error| (error_line(&error), None)),
            (None, None) => return None,
        };
        Some((Ok::<_, Infallible>(piece), (None, pages)))
    });
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The next piece that is not empty, and the rest of the answer if it is not complete.
async fn next<P: Pages>(mut pages: P) -> Result<(Bytes, Option<P>), Error> {
    loop {
        let bucket = Arc::clone(pages.bucket());
        let work = move || {
            let mut lines = String::new();
            let goes_on = pages.piece(&mut lines);
            (pages, lines, goes_on)
        };
        let (made, lines, goes_on) = bucket.on_reading_thread(work).await?;
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
