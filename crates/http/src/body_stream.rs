//! The body of a request, given to a handler as it arrives.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::Problem;
use crate::context::RequestContext;
use crate::extract::unreadable;

/// Bytes that must arrive within the route's timeout, so that a client that sends next to nothing does not go on for ever.
const PROGRESS_BYTES: usize = 64 << 10;

/// A body whose pieces are taken one after the other. The client sends no more than the connection's buffer ahead of them.
///
/// The deadline of the request follows the progress: every 64 KiB move
/// it to the route's timeout from then, and so does the end of the body.
pub struct BodyStream {
    body: Body,
    context: Arc<RequestContext>,
    /// Time within which the next [`PROGRESS_BYTES`] must arrive.
    timeout: Duration,
    /// Bytes since the deadline was moved.
    progress: usize,
}

impl std::fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BodyStream({} bytes since the deadline moved)", self.progress)
    }
}

impl BodyStream {
    pub(crate) fn new(body: Body, context: &Arc<RequestContext>) -> Self {
        let timeout = context.time.due().duration_since(context.time.started());
        Self { body, context: Arc::clone(context), timeout, progress: 0 }
    }

    /// The next piece; `None` at the end of a body that is complete.
    ///
    /// # Errors
    /// A [`Problem`] for a body that ends early or is larger than the route's limit.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let RequestContext { time, limits, shutdown, .. } = &*self.context;
        loop {
            time.set_reading_body(true);
            let frame = self.body.frame().await;
            time.set_reading_body(false);
            let Some(frame) = frame else {
                time.extension(shutdown).at_least(self.timeout);
                return Ok(None);
            };
            let Ok(piece) = frame.map_err(|error| unreadable(error, limits))?.into_data() else { continue };
            self.progress += piece.len();
            if self.progress >= PROGRESS_BYTES {
                self.progress = 0;
                time.extension(shutdown).at_least(self.timeout);
            }
            return Ok(Some(piece));
        }
    }
}
