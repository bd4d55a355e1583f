//! Reads ranges of a running backup's files, many in one request.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use millstream_cli::{Server, accepted};
use serde_json::Value;
use tokio::time::Instant;

use super::pace::Pace;

/// Ranges in a request.
const RANGES_MAX: usize = 128;
/// Bytes in a request.
const REQUEST_BYTES: u64 = 64 << 20;
/// Time without a request after which the server is told that the backup goes on.
const TOUCH_AFTER: Duration = Duration::from_secs(10);

/// A range of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileRange {
    /// The number of the file in the server's list.
    pub(super) file: usize,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The bytes of ranges, one after the other.
pub(super) struct RangedBytes<'a> {
    server: &'a Server,
    /// The path of the backup.
    path: &'a str,
    waiting: VecDeque<FileRange>,
    body: Option<Incoming>,
    /// Received and not taken yet.
    received: Bytes,
    pace: Pace,
    asked_at: Instant,
}

impl<'a> RangedBytes<'a> {
    pub(super) fn new(server: &'a Server, path: &'a str, pace: Pace) -> Self {
        let (waiting, received) = (VecDeque::new(), Bytes::new());
        Self { server, path, waiting, body: None, received, pace, asked_at: Instant::now() }
    }

    /// Adds a range behind the others.
    pub(super) fn push(&mut self, range: FileRange) {
        self.waiting.push_back(range);
    }

    /// At most `max_bytes` of what comes next, and at least one.
    pub(super) async fn take(&mut self, max_bytes: u64) -> anyhow::Result<Bytes> {
        while self.received.is_empty() {
            let Some(body) = &mut self.body else {
                self.body = Some(self.ask().await?);
                continue;
            };
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.pace.spend(piece.len() as u64).await;
                        self.asked_at = Instant::now();
                        self.received = piece;
                    }
                }
                Some(Err(broken)) => return Err(self.why(broken.into()).await),
                None => self.body = None,
            }
        }
        let length = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(self.received.len());
        Ok(self.received.split_to(length))
    }

    /// Tells the server that the backup goes on, if it has not been asked for a while.
    pub(super) async fn touch(&mut self) -> anyhow::Result<()> {
        if self.asked_at.elapsed() > TOUCH_AFTER {
            self.server.answered(Method::GET, self.path, String::new()).await?;
            self.asked_at = Instant::now();
        }
        Ok(())
    }

    /// Asks for the next ranges.
    async fn ask(&mut self) -> anyhow::Result<Incoming> {
        let (mut asked, mut bytes) = (Vec::new(), 0);
        while let Some(range) = self.waiting.pop_front() {
            let FileRange { file, from, to } = range;
            let end = to.min(from + (REQUEST_BYTES - bytes));
            asked.push(format!("{file}:{from}-{end}"));
            bytes += end - from;
            if end < to {
                self.waiting.push_front(FileRange { from: end, ..range });
            }
            if bytes == REQUEST_BYTES || asked.len() == RANGES_MAX {
                break;
            }
        }
        if asked.is_empty() {
            bail!("the server sent fewer bytes than were asked for");
        }
        let path = format!("{}/bytes?ranges={}", self.path, asked.join(","));
        let answer = self.server.send(Method::GET, &path, String::new(), "application/octet-stream").await?;
        self.asked_at = Instant::now();
        match answer.status().is_success() {
            true => Ok(answer.into_body()),
            false => {
                accepted(answer).await?;
                bail!("the server answered neither bytes nor a refusal");
            }
        }
    }

    /// The reason why an answer broke off: the server's, if it says one.
    async fn why(&self, broken: anyhow::Error) -> anyhow::Error {
        let asked: anyhow::Result<Value> = self.server.ask(Method::GET, self.path, String::new()).await;
        let reason = asked.err().unwrap_or(broken);
        reason.context("the server broke off")
    }
}
