//! The body of an answer: sends it in pieces, counts its bytes and records its end in the connection's activity.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::activity::ConnectionActivity;
use crate::api::MountedRoute;
use crate::memory::ResponseMemory;

/// Most bytes that one connection sends before other connections of its thread run.
const PIECE_BYTES: usize = 32 << 10;

pub(crate) struct ResponseBody {
    body: Body,
    /// The unsent rest of a frame that is larger than a piece.
    rest: Bytes,
    /// `true` if the task has yielded since the last piece.
    gave_way: bool,
    sent_bytes: u64,
    route: Option<Arc<MountedRoute>>,
    _held: Option<ResponseMemory>,
    activity: Arc<ConnectionActivity>,
}

impl ResponseBody {
    pub(crate) fn of_route(
        body: Body,
        route: Arc<MountedRoute>,
        activity: Arc<ConnectionActivity>,
        held: Option<ResponseMemory>,
    ) -> Self {
        Self::new(body, Some(route), activity, held)
    }

    pub(crate) fn without_route(body: Body, activity: Arc<ConnectionActivity>) -> Self {
        Self::new(body, None, activity, None)
    }

    fn new(
        body: Body,
        route: Option<Arc<MountedRoute>>,
        activity: Arc<ConnectionActivity>,
        held: Option<ResponseMemory>,
    ) -> Self {
        Self { body, rest: Bytes::new(), gave_way: true, sent_bytes: 0, route, _held: held, activity }
    }

    /// Returns the next piece of a large frame, after yielding to other connections.
    fn next_piece(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Bytes>> {
        if !std::mem::replace(&mut self.gave_way, true) {
            // hyper flushes the sent pieces, and this task goes to the end of its thread's queue.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gave_way = false;
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        self.sent_bytes += piece.len() as u64;
        Poll::Ready(Frame::data(piece))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
            if self.rest.len() <= PIECE_BYTES {
                let whole = std::mem::take(&mut self.rest);
                self.sent_bytes += whole.len() as u64;
                return Poll::Ready(Some(Ok(Frame::data(whole))));
            }
        }
        self.next_piece(cx).map(|piece| Some(Ok(piece)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = left.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(left.lower() + rest);
        hint
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(route) = &self.route {
            route.metrics.sent(self.sent_bytes);
        }
        self.activity.end_request();
    }
}

#[cfg(test)]
mod tests {
    use millstream_net::PendingLogin;

    use super::*;

    #[test]
    fn a_large_body_gives_way_between_its_pieces() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|n| n as u8).collect();
        let activity = Arc::new(ConnectionActivity::new(PendingLogin::unlisted()));
        let mut answer = ResponseBody::without_route(Body::from(bytes.clone()), activity);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut sent, mut gave_way) = (Vec::new(), 0);
        while !answer.is_end_stream() {
            assert_eq!(answer.size_hint().exact(), Some((bytes.len() - sent.len()) as u64));
            match Pin::new(&mut answer).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let piece = frame.into_data().expect("data");
                    assert!(piece.len() <= PIECE_BYTES);
                    sent.extend_from_slice(&piece);
                }
                Poll::Pending => gave_way += 1,
                Poll::Ready(other) => panic!("the body ended early: {other:?}"),
            }
        }
        assert_eq!(sent, bytes);
        assert_eq!(gave_way, 3);
    }
}
