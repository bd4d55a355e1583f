//! What a client has been sent of the results of a query that is kept, until it is known to have arrived.
//!
//! ```text
//!   waiting:   │ sent │ not sent yet │
//!              ▲ after `gone`        ▲ `last`
//! ```
//!
//! Each result has a number, and a client that comes back names the last one that it has. Numbers ascend, and none is given
//! to two results: they begin anew with each start of the log, whose epoch they carry, since what one process has given and
//! not kept comes again in the next, perhaps divided otherwise.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use millstream_types::Epoch;
use serde::{Deserialize, Serialize};

/// The number of a result, as clients see it (`Last-Event-ID`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ResultId {
    epoch: u32,
    number: u64,
}

impl ResultId {
    /// The one after it.
    pub(crate) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

impl fmt::Display for ResultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.number)
    }
}

/// Not the number of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the number of a result is two numbers with '-' between them, as the id of its event was")]
pub struct NoResultId;

impl FromStr for ResultId {
    type Err = NoResultId;

    fn from_str(text: &str) -> Result<Self, NoResultId> {
        let (epoch, number) = text.split_once('-').ok_or(NoResultId)?;
        let epoch = epoch.parse().map_err(|_| NoResultId)?;
        Ok(Self { epoch, number: number.parse().map_err(|_| NoResultId)? })
    }
}

impl From<ResultId> for String {
    fn from(id: ResultId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ResultId {
    type Error = NoResultId;

    fn try_from(text: String) -> Result<Self, NoResultId> {
        text.parse()
    }
}

/// Numbers of the results that wait, and how far they have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trail {
    ids: VecDeque<ResultId>,
    /// The last that a result has got.
    last: ResultId,
    /// The last whose result is here no longer.
    gone: ResultId,
    /// How many of those that wait have been sent.
    sent: usize,
    sent_bytes: usize,
    /// To which client.
    client: u64,
}

/// What is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptTrail {
    ids: VecDeque<ResultId>,
    last: ResultId,
    gone: ResultId,
    sent: usize,
}

impl Trail {
    /// Of a query that begins in this epoch of the log.
    pub(crate) fn begin(epoch: Epoch) -> Self {
        let last = ResultId { epoch: epoch.0, number: 0 };
        Self { ids: VecDeque::new(), last, gone: ResultId::default(), sent: 0, sent_bytes: 0, client: 0 }
    }

    /// Of one that a former process has kept, with results of these sizes waiting. If these have no
    /// numbers they get some.
    pub(crate) fn resume(kept: Option<&KeptTrail>, sizes: &[usize], epoch: Epoch) -> Self {
        let mut trail = Self::begin(epoch);
        if let Some(kept) = kept.filter(|kept| kept.ids.len() == sizes.len()) {
            trail.last = trail.last.max(kept.last);
            (trail.ids, trail.gone, trail.sent) = (kept.ids.clone(), kept.gone, kept.sent.min(sizes.len()));
            trail.sent_bytes = sizes[..trail.sent].iter().sum();
        } else {
            sizes.iter().for_each(|_| trail.push());
        }
        trail
    }

    /// Changes whenever what is kept of it does.
    pub(crate) fn stamp(&self) -> (ResultId, ResultId, usize) {
        (self.last, self.gone, self.sent)
    }

    pub(crate) fn keep(&self) -> KeptTrail {
        KeptTrail { ids: self.ids.clone(), last: self.last, gone: self.gone, sent: self.sent }
    }

    /// One more waits.
    pub(crate) fn push(&mut self) {
        self.last = self.last.next();
        self.ids.push_back(self.last);
    }

    /// The oldest has gone, which takes so many bytes.
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

    /// The next one is sent, which takes so many bytes: its number.
    pub(crate) fn send(&mut self, size_bytes: usize) -> ResultId {
        let id = self.ids.get(self.sent).copied().unwrap_or(self.last);
        self.sent += 1;
        self.sent_bytes += size_bytes;
        id
    }

    pub(crate) fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// Whether more has been sent than need stay: the last of it does.
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

    /// Whether the oldest that waits has arrived with a client that has everything up to `id`.
    pub(crate) fn has_arrived(&self, id: ResultId) -> bool {
        self.ids.front().is_some_and(|oldest| *oldest <= id)
    }

    /// From now on this client is sent what has not been sent.
    pub(crate) fn go_on(&mut self, client: u64) {
        self.client = client;
    }

    /// From now on this client is sent whatever waits. Whether nothing has gone since the result that it has.
    pub(crate) fn begin_again(&mut self, client: u64, id: ResultId) -> bool {
        (self.sent, self.sent_bytes, self.client) = (0, 0, client);
        self.gone <= id
    }

    pub(crate) fn is_of(&self, client: u64) -> bool {
        self.client == client
    }
}
