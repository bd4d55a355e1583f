//! A connection while its requests are plain: a thread's buffer to read into, one to write from, and nothing of its own
//! but what its peer is slow to take.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::answer::answer;
use super::{Looked, PART_MAX, Pending};
use crate::Problem;
use crate::connection::{Pulse, Watched};
use crate::context::Stage;
use crate::rim::{Rim, panic_text};

/// So much is read at once, and so long a plain request can be, head and body together.
const READ_BYTES: usize = 16 << 10;

/// The buffers of a thread.
struct Buffers {
    read: Box<[u8]>,
    answers: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> =
        RefCell::new(Buffers { read: vec![0; READ_BYTES].into_boxed_slice(), answers: Vec::new() });
}

/// How a connection goes on.
pub(crate) enum Onward {
    /// It is over.
    Over,
    /// With these bytes, which have been read and are no plain request.
    With(Bytes),
}

struct Line<'a> {
    socket: &'a mut Watched,
    rim: &'a Rim,
    peer: SocketAddr,
    pulse: Arc<Pulse>,
    /// What the peer has not taken yet of the answers.
    unsent: Vec<u8>,
    /// The request that waits for its verdict.
    pending: Option<Box<Pending>>,
    /// What has been read behind the last request: the beginning of the next, or what is not plain.
    rest: Vec<u8>,
    /// When the first part of a request came whose rest is missing.
    begun: Option<Instant>,
    /// There will be no more plain requests.
    is_leaving: bool,
    /// When bytes have last come, if any have since somebody looked.
    heard: Option<Instant>,
}

/// Serves a connection as long as its requests are plain and the listener does not stop.
pub(crate) async fn serve(
    socket: &mut Watched,
    peer: SocketAddr,
    (pulse, rim): (Arc<Pulse>, &Rim),
    stage: &watch::Receiver<Stage>,
) -> Onward {
    let mut look = pin!(sleep_until(pulse.look(&rim.limits)));
    let (unsent, rest) = (Vec::new(), Vec::new());
    let mut line =
        Line { socket, rim, peer, pulse, unsent, pending: None, rest, begun: None, is_leaving: false, heard: None };
    let mut stages = stage.clone();
    loop {
        let mut is_armed = false;
        let mut changed = pin!(stages.changed());
        let onward = poll_fn(|cx| {
            if look.is_elapsed() {
                line.give_up(Instant::now());
            }
            if let Poll::Ready(onward) = line.poll_work(cx) {
                return Poll::Ready(Some(onward));
            }
            if !line.rest.is_empty() && line.begun.is_none() && !line.is_leaving {
                let begun = Instant::now();
                (line.begun, is_armed) = (Some(begun), false);
                look.as_mut().reset(begun + PART_MAX);
            }
            // Seldom, as a request's time is mostly longer than until the next look: no timer is set for each.
            if let Some(due) = line.pending.as_ref().map(|pending| pending.due()).filter(|due| *due < look.deadline()) {
                is_armed = false;
                look.as_mut().reset(due);
            }
            // A look at the time and at the stage is cheap; being called for them is arranged once.
            let is_calm = |heard: Instant| heard < look.deadline() && stage.has_changed().is_ok_and(|has| !has);
            if line.heard.take().is_some_and(is_calm) && is_armed {
                return Poll::Pending;
            }
            is_armed = true;
            while look.as_mut().poll(cx).is_ready() {
                if line.begun.is_some_and(|begun| begun.elapsed() >= PART_MAX) {
                    line.is_leaving = true;
                    return Poll::Ready(None);
                }
                let next = line.pulse.judge(Instant::now(), &line.rim.limits);
                let due = line.pending.as_ref().map(|pending| pending.due());
                match next {
                    Some(next) => look.as_mut().reset(due.map_or(next, |due| due.min(next))),
                    None => return Poll::Ready(Some(Onward::Over)),
                }
            }
            changed.as_mut().poll(cx).map(|_| None)
        });
        match onward.await {
            Some(onward) => return onward,
            // Gone with its listener, or about to be.
            None if *stage.borrow() == Stage::Closing => return Onward::Over,
            None => line.is_leaving = true,
        }
    }
}

impl Line<'_> {
    /// Answers, sends and reads as far as that goes without waiting.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Onward> {
        loop {
            ready!(self.poll_verdict(cx));
            if ready!(self.poll_send(cx)).is_err() {
                return Poll::Ready(Onward::Over);
            }
            if self.is_leaving {
                return Poll::Ready(Onward::With(std::mem::take(&mut self.rest).into()));
            }
            match ready!(self.poll_read(cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(Onward::Over),
            }
        }
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(()) };
        let polled = catch_unwind(AssertUnwindSafe(|| pending.verdict.as_mut().poll(cx)));
        let response = match polled {
            Ok(verdict) => ready!(verdict),
            Err(panic) => Problem::internal(panic_text(&*panic)).into_response(),
        };
        self.tell(response);
        Poll::Ready(())
    }

    /// Ends the wait for a verdict that has not come in time.
    fn give_up(&mut self, now: Instant) {
        if let Some(pending) = self.pending.as_ref().filter(|pending| pending.due() <= now) {
            self.tell(pending.give_up());
        }
    }

    /// Answers the request that waits.
    fn tell(&mut self, response: Response) {
        let Some(mut pending) = self.pending.take() else { return };
        let about = (pending.origin, pending.echo.take(), pending.observed.take());
        answer(response, &pending.route, &pending.method, about, &mut self.unsent);
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut *self.socket).poll_write(cx, &self.unsent))?;
            self.unsent.drain(..sent);
            if self.unsent.is_empty() {
                self.pulse.rest(Instant::now());
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and works off what has come; false at the end of the connection.
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

    /// Works off the plain requests that `bytes` begin with.
    fn work_off(&mut self, bytes: &[u8], answers: &mut Vec<u8>) {
        let now = Instant::now();
        self.heard = Some(now);
        let mut at = 0;
        // Behind a request that waits nothing is looked at.
        while at < bytes.len() && !self.is_leaving {
            match self.rim.look(&bytes[at..], self.peer, now, answers) {
                Looked::Answered(size) => at += size,
                Looked::Taken(size, pending) => {
                    at += size;
                    self.pending = Some(pending);
                    self.pulse.begin_request();
                    self.is_leaving = at < bytes.len();
                    break;
                }
                Looked::Partial if bytes.len() - at < READ_BYTES => break,
                Looked::Partial | Looked::NotPlain => self.is_leaving = true,
            }
        }
        if at > 0 {
            self.begun = None;
        }
        self.rest.extend_from_slice(&bytes[at..]);
        if at > 0 && self.pending.is_none() {
            self.pulse.rest(now);
        }
    }

    /// Sends what goes at once; the rest is kept until the peer takes it.
    fn send_first(&mut self, cx: &mut Context<'_>, answers: &[u8]) -> Poll<std::io::Result<()>> {
        if answers.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let sent = match Pin::new(&mut *self.socket).poll_write(cx, answers) {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        if sent < answers.len() {
            self.pulse.begin_request();
            self.unsent.extend_from_slice(&answers[sent..]);
        }
        Poll::Ready(Ok(()))
    }
}
