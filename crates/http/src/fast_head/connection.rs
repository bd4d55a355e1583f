//! A connection as long as the fast head can read its requests. Connections of a thread share one read and one write
//! buffer; each keeps only the answers that its peer is slow to read.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::response::Response;
use bytes::Bytes;
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::response::write_answer;
use super::{PART_MAX, Pending, READ_BYTES, ReadOutcome};
use crate::activity::ConnectionActivity;
use crate::context::ConnectionPeer;
use crate::exchange;
use crate::memory::ResponseMemory;
use crate::pipeline::Pipeline;
use crate::socket::MonitoredSocket;

/// The read and write buffers of a thread.
struct Buffers {
    read: Box<[u8]>,
    answers: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> =
        RefCell::new(Buffers { read: vec![0; READ_BYTES].into_boxed_slice(), answers: Vec::new() });
}

/// The end of the fast head's work on a connection.
pub(crate) enum AfterFastHead {
    Closed,
    /// hyper continues with these bytes, which have been read.
    Hyper(Bytes),
}

struct FastConnection<'a> {
    socket: &'a mut MonitoredSocket,
    pipeline: &'a Pipeline,
    client: &'a ConnectionPeer,
    activity: Arc<ConnectionActivity>,
    /// Answers that the peer has not read yet.
    unsent: Vec<u8>,
    /// The memory of these answers.
    unsent_memory: Vec<ResponseMemory>,
    /// The request whose answer is awaited.
    pending: Option<Box<Pending<'a>>>,
    /// Bytes behind the last request: the beginning of the next, or a request for hyper.
    rest: Vec<u8>,
    /// `rest` contains bytes that arrived while a request waited and are not parsed yet.
    is_rest_new: bool,
    /// Arrival of the first part of an incomplete request.
    begun: Option<Instant>,
    /// hyper serves the further requests of the connection.
    is_leaving: bool,
    /// Time of the last read since the last check.
    heard: Option<Instant>,
}

/// Serves a connection until hyper has to read a request or the listener stops.
pub(crate) async fn serve<'a>(
    socket: &'a mut MonitoredSocket,
    client: &'a ConnectionPeer,
    activity: Arc<ConnectionActivity>,
    pipeline: &'a Pipeline,
) -> AfterFastHead {
    let mut look = pin!(sleep_until(activity.look(&pipeline.limits)));
    let (unsent, unsent_memory, rest) = (Vec::new(), Vec::new(), Vec::new());
    let (pending, begun, heard, is_rest_new, is_leaving) = (None, None, None, false, false);
    let mut connection = FastConnection {
        socket,
        pipeline,
        client,
        activity,
        unsent,
        unsent_memory,
        pending,
        rest,
        is_rest_new,
        begun,
        is_leaving,
        heard,
    };
    let mut stopping = pin!(pipeline.shutdown.clone().begun());
    let mut is_stopping = false;
    loop {
        let mut is_armed = false;
        let after = poll_fn(|cx| {
            if look.is_elapsed() {
                connection.give_up(Instant::now());
            }
            if let Poll::Ready(after) = connection.poll_work(cx) {
                return Poll::Ready(Some(after));
            }
            if !connection.rest.is_empty()
                && connection.pending.is_none()
                && connection.begun.is_none()
                && !connection.is_leaving
            {
                let begun = Instant::now();
                (connection.begun, is_armed) = (Some(begun), false);
                look.as_mut().reset(begun + PART_MAX);
            }
            // This is rare: most requests may wait longer than until the next check, so they set no timer.
            if let Some(due) = connection.pending.as_deref().map(Pending::due).filter(|due| *due < look.deadline()) {
                is_armed = false;
                look.as_mut().reset(due);
            }
            // Checking the time and the listener is cheap; their wakers are registered once.
            let is_calm = |heard: Instant| heard < look.deadline() && !pipeline.shutdown.has_begun();
            if connection.heard.take().is_some_and(is_calm) && is_armed {
                return Poll::Pending;
            }
            is_armed = true;
            while look.as_mut().poll(cx).is_ready() {
                if connection.begun.is_some_and(|begun| begun.elapsed() >= PART_MAX) {
                    connection.is_leaving = true;
                    return Poll::Ready(None);
                }
                let next = connection.activity.judge(Instant::now(), &connection.pipeline.limits);
                let due = connection.pending.as_deref().map(Pending::due);
                match next {
                    Some(next) => look.as_mut().reset(due.map_or(next, |due| due.min(next))),
                    None => return Poll::Ready(Some(AfterFastHead::Closed)),
                }
            }
            if is_stopping || stopping.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_stopping = true;
            Poll::Ready(None)
        });
        match after.await {
            Some(after) => return after,
            // A request is late, or the listener stops.
            None => connection.is_leaving = true,
        }
    }
}

impl Pending<'_> {
    /// The end of the wait.
    fn due(&self) -> Instant {
        exchange::due(&*self.later, &self.time)
    }
}

impl FastConnection<'_> {
    /// Answers, sends and reads until it would block.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<AfterFastHead> {
        loop {
            while self.poll_verdict(cx).is_pending() {
                match ready!(self.poll_behind(cx)) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Poll::Ready(AfterFastHead::Closed),
                }
            }
            if ready!(self.poll_send(cx)).is_err() {
                return Poll::Ready(AfterFastHead::Closed);
            }
            if self.is_leaving {
                return Poll::Ready(AfterFastHead::Hyper(std::mem::take(&mut self.rest).into()));
            }
            let read = match std::mem::take(&mut self.is_rest_new) {
                true => self.work_off_rest(cx).map_ok(|()| true),
                false => self.poll_read(cx),
            };
            match ready!(read) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(AfterFastHead::Closed),
            }
        }
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(()) };
        let response = ready!(exchange::poll(pending.later.as_mut(), cx));
        self.tell(response);
        Poll::Ready(())
    }

    /// Answers a request that has waited too long.
    fn give_up(&mut self, now: Instant) {
        let Some(pending) = &self.pending else { return };
        if let Some(response) = exchange::give_up(&*pending.later, &pending.time, now) {
            self.tell(response);
        }
    }

    fn tell(&mut self, response: Response) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { exchange, time, .. } = *pending;
        let held = write_answer(self.pipeline, exchange, response, time.started(), &mut self.unsent);
        self.unsent_memory.extend(held);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut *self.socket).poll_write(cx, &self.unsent))?;
            self.unsent.drain(..sent);
            if self.unsent.is_empty() {
                self.unsent_memory.clear();
                self.activity.rest(Instant::now());
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and serves the requests; false at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        BUFFERS.with_borrow_mut(|Buffers { read, answers }| {
            let mut buffer = ReadBuf::new(read);
            ready!(self.socket.poll_raw(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(false));
            }
            answers.clear();
            if self.rest.is_empty() {
                self.work_off(buffer.filled(), answers);
            } else {
                let mut bytes = std::mem::take(&mut self.rest);
                bytes.extend_from_slice(buffer.filled());
                self.work_off(&bytes, answers);
            }
            self.send_first(cx, answers).map_ok(|()| true)
        })
    }

    /// Reads while a request waits; false if its client has left. The bytes are parsed after the answer.
    fn poll_behind(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        if self.rest.len() >= READ_BYTES {
            return Poll::Pending;
        }
        BUFFERS.with_borrow_mut(|Buffers { read, .. }| {
            let mut buffer = ReadBuf::new(read);
            ready!(self.socket.poll_raw(cx, &mut buffer))?;
            self.rest.extend_from_slice(buffer.filled());
            self.is_rest_new = true;
            Poll::Ready(Ok(!buffer.filled().is_empty()))
        })
    }

    /// Serves the requests that arrived while another one waited.
    fn work_off_rest(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        BUFFERS.with_borrow_mut(|Buffers { answers, .. }| {
            answers.clear();
            let bytes = std::mem::take(&mut self.rest);
            self.work_off(&bytes, answers);
            self.send_first(cx, answers)
        })
    }

    /// Serves the requests at the beginning of `bytes`.
    fn work_off(&mut self, bytes: &[u8], answers: &mut Vec<u8>) {
        let now = Instant::now();
        self.heard = Some(now);
        let mut at = 0;
        // Bytes behind a waiting request are parsed later.
        while at < bytes.len() && !self.is_leaving {
            match self.pipeline.serve_first(&bytes[at..], self.client, now, answers) {
                ReadOutcome::Answered(size, held) => {
                    at += size;
                    self.unsent_memory.extend(held);
                }
                ReadOutcome::Pending(size, pending) => {
                    at += size;
                    self.pending = Some(pending);
                    self.activity.begin_request();
                    self.is_rest_new = at < bytes.len();
                    break;
                }
                ReadOutcome::Partial if bytes.len() - at < READ_BYTES => break,
                ReadOutcome::Partial | ReadOutcome::ForHyper => self.is_leaving = true,
            }
        }
        if at > 0 {
            self.begun = None;
        }
        self.rest.extend_from_slice(&bytes[at..]);
        if at > 0 && self.pending.is_none() {
            self.activity.rest(now);
        }
    }

    /// Sends as much as the socket takes and keeps the rest.
    fn send_first(&mut self, cx: &mut Context<'_>, answers: &[u8]) -> Poll<std::io::Result<()>> {
        if answers.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let sent = match Pin::new(&mut *self.socket).poll_write(cx, answers) {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        if sent < answers.len() {
            self.activity.begin_request();
            self.unsent.extend_from_slice(&answers[sent..]);
        } else {
            self.unsent_memory.clear();
        }
        Poll::Ready(Ok(()))
    }
}
