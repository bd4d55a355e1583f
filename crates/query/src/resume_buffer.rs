//! The results of a kept query that were sent to its client and have perhaps not arrived.
//!
//! ```text
//!   waiting:   │ sent │ not sent yet │
//!              ▲ after `gone`        ▲ `last`
//! ```
//!
//! Each result has a number, and a client that reconnects names the last one that it has. Numbers ascend and are never
//! reused. They contain the number of the process's life and restart with it: results that one process has sent and not stored
//! are produced again by the next one, perhaps divided differently.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a result, as clients see it (`Last-Event-ID`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ResultId {
    life: u32,
    number: u64,
}

impl ResultId {
    /// The number of the next result.
    pub(crate) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

impl fmt::Display for ResultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.life, self.number)
    }
}

/// Not the number of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the number of a result is two numbers with '-' between them, as the id of its event was")]
pub struct InvalidResultId;

impl FromStr for ResultId {
    type Err = InvalidResultId;

    fn from_str(text: &str) -> Result<Self, InvalidResultId> {
        let (life, number) = text.split_once('-').ok_or(InvalidResultId)?;
        let life = life.parse().map_err(|_| InvalidResultId)?;
        Ok(Self { life, number: number.parse().map_err(|_| InvalidResultId)? })
    }
}

impl From<ResultId> for String {
    fn from(id: ResultId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ResultId {
    type Error = InvalidResultId;

    fn try_from(text: String) -> Result<Self, InvalidResultId> {
        text.parse()
    }
}

/// Numbers of the results that wait, and how far they have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumeBuffer {
    ids: VecDeque<ResultId>,
    /// The last that a result has got.
    last: ResultId,
    /// The number of the last result that was dropped.
    gone: ResultId,
    /// The number of waiting results that were sent.
    sent: usize,
    sent_bytes: usize,
    /// The client that they were sent to.
    client: u64,
}

/// The stored form of a resume buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredResumeBuffer {
    ids: VecDeque<ResultId>,
    last: ResultId,
    gone: ResultId,
    sent: usize,
}

impl StoredResumeBuffer {
    /// The life of the process that has numbered the last result.
    pub(crate) fn life(&self) -> u32 {
        self.last.life
    }
}

impl ResumeBuffer {
    /// The empty buffer of a query that begins in this life of the process.
    pub(crate) fn begin(life: u32) -> Self {
        let last = ResultId { life, number: 0 };
        Self { ids: VecDeque::new(), last, gone: ResultId::default(), sent: 0, sent_bytes: 0, client: 0 }
    }

    /// The buffer of a resumed query whose waiting results have these sizes. Results without stored numbers get new ones.
    pub(crate) fn resume(kept: Option<&StoredResumeBuffer>, sizes: &[usize], life: u32) -> Self {
        let mut resume_buffer = Self::begin(life);
        if let Some(kept) = kept.filter(|kept| kept.ids.len() == sizes.len()) {
            resume_buffer.last = resume_buffer.last.max(kept.last);
            (resume_buffer.ids, resume_buffer.gone, resume_buffer.sent) =
                (kept.ids.clone(), kept.gone, kept.sent.min(sizes.len()));
            resume_buffer.sent_bytes = sizes[..resume_buffer.sent].iter().sum();
        } else {
            sizes.iter().for_each(|_| resume_buffer.push());
        }
        resume_buffer
    }

    /// A value that changes whenever the stored form does.
    pub(crate) fn stamp(&self) -> (ResultId, ResultId, usize) {
        (self.last, self.gone, self.sent)
    }

    pub(crate) fn keep(&self) -> StoredResumeBuffer {
        StoredResumeBuffer { ids: self.ids.clone(), last: self.last, gone: self.gone, sent: self.sent }
    }

    /// Numbers one more waiting result.
    pub(crate) fn push(&mut self) {
        self.last = self.last.next();
        self.ids.push_back(self.last);
    }

    /// Drops the oldest result, of this size.
    pub(crate) fn pop(&mut self, size_bytes: usize) {
        self.gone = self.ids.pop_front().unwrap_or(self.last);
        if self.sent > 0 {
            self.sent -= 1;
            self.sent_bytes -= size_bytes;
        }
    }

    /// The place of the next that is to be sent.
    pub(crate) fn next(&self) -> usize {
        self.sent
    }

    /// Marks the next result, of `size_bytes` bytes, as sent, and returns its number.
    pub(crate) fn send(&mut self, size_bytes: usize) -> ResultId {
        let id = self.ids.get(self.sent).copied().unwrap_or(self.last);
        self.sent += 1;
        self.sent_bytes += size_bytes;
        id
    }

    pub(crate) fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// True if more was sent than has to stay; the last result always stays.
    pub(crate) fn has_too_much(&self, sent_max_bytes: usize) -> bool {
        self.sent > 1 && self.sent_bytes > sent_max_bytes
    }

    /// The last that has been sent, or is here no longer.
    pub(crate) fn sent_up_to(&self) -> ResultId {
        self.sent.checked_sub(1).and_then(|last| self.ids.get(last)).copied().unwrap_or(self.gone)
    }

    /// The number of the end, after all results.
    pub(crate) fn end(&self) -> ResultId {
        self.last.next()
    }

    /// True if a client that has everything up to `id` has the oldest waiting result.
    pub(crate) fn has_arrived(&self, id: ResultId) -> bool {
        self.ids.front().is_some_and(|oldest| *oldest <= id)
    }

    /// Sends the unsent results to this client from now on.
    pub(crate) fn go_on(&mut self, client: u64) {
        self.client = client;
    }

    /// Sends the waiting results to this client from now on. True if no result after `id` was dropped.
    pub(crate) fn begin_again(&mut self, client: u64, id: ResultId) -> bool {
        (self.sent, self.sent_bytes, self.client) = (0, 0, client);
        self.gone <= id
    }

    pub(crate) fn is_of(&self, client: u64) -> bool {
        self.client == client
    }
}
