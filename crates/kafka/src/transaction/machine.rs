//! One transactional id as a state machine: a request and the time go in, what is to be stored comes out. No I/O, no
//! clock, no thread; nothing changes until the caller has stored what it was given.
//!
//! ```text
//!             partitions or groups are added             EndTxn, or time is up
//!   Empty ──────────────────────────────────► Ongoing ──────────────────────────► CompleteCommit, CompleteAbort
//!     ▲                                          ▲                                            │
//!     └── InitProducerId, from any state         └──────── partitions or groups are added ────┘
//! ```
//!
//! Invariants
//! - Producer id and epoch are those of the last answer to InitProducerId; whoever names others changes nothing.
//! - An epoch is never handed out twice. One that has timed out, or is taken over in an open transaction, is followed by
//!   one that nobody gets: the markers that abort the transaction carry it, and so fence the old one in every partition.
//! - Only `Ongoing` has partitions and groups.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use millstream_log::PositionCommit;
use millstream_types::TopicPartition;

/// The last epoch that is handed out; the one above it is for fencing alone.
const EPOCH_LAST: i16 = i16::MAX - 1;

/// Where a transactional id stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its producer has not begun anything yet.
    Empty,
    /// A transaction is open.
    Ongoing,
    /// Its last transaction was committed.
    CompleteCommit,
    /// Its last transaction was aborted.
    CompleteAbort,
}

/// Who produces: the id and the epoch that InitProducerId has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producing {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// How a transaction ends: what the log is to append along with the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Whose markers they are.
    pub(crate) producer: Producing,
    pub(crate) commit: bool,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// To be committed; none if it is aborted.
    pub(crate) positions: Vec<PositionCommit>,
}

/// What a request leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// To be stored, and true from then on.
    pub(crate) next: Transaction,
    /// The end of the open transaction, to be stored with it.
    pub(crate) ending: Option<Ending>,
}

/// How much one transaction may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Partitions, and positions of all groups, each.
    pub(crate) partitions_max: usize,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) producer: Producing,
    /// What the producer had before, if it has told so itself: when it asks again, it has missed the answer.
    pub(crate) previous: Option<Producing>,
    pub(crate) timeout_ms: u32,
    pub(crate) stage: Stage,
    /// When the open transaction began, or else when the last change was made; wall clock.
    pub(crate) since_ms: i64,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// Positions to be committed, by group.
    pub(crate) groups: BTreeMap<String, BTreeMap<TopicPartition, PositionCommit>>,
}

impl Transaction {
    /// Of an id that nobody has had.
    pub(crate) fn new(producer_id: i64, timeout_ms: u32, now_ms: i64) -> Self {
        Self {
            producer: Producing { id: producer_id, epoch: 0 },
            previous: None,
            timeout_ms,
            stage: Stage::Empty,
            since_ms: now_ms,
            partitions: BTreeSet::new(),
            groups: BTreeMap::new(),
        }
    }

    /// A producer takes the id over, or comes back to it with what it had (`given`): it gets the next epoch, or another
    /// producer id (`fresh`) once the epochs are used up. What is open is aborted. `None` if it has got it already.
    pub(crate) fn take_over(
        &self,
        given: Option<Producing>,
        timeout_ms: u32,
        now_ms: i64,
        fresh: impl FnOnce() -> Option<i64>,
    ) -> Result<Option<Step>, ResponseError> {
        if let Some(given) = given.filter(|given| *given != self.producer) {
            return if self.previous == Some(given) { Ok(None) } else { Err(ResponseError::ProducerFenced) };
        }
        let ending = (self.stage == Stage::Ongoing).then(|| self.fencing_abort());
        let used = ending.as_ref().map_or(self.producer.epoch, |ending| ending.producer.epoch);
        let producer = if used >= EPOCH_LAST {
            Producing { id: fresh().ok_or(ResponseError::UnknownServerError)?, epoch: 0 }
        } else {
            Producing { epoch: used + 1, ..self.producer }
        };
        let next = Self { producer, previous: given, timeout_ms, ..self.closed(Stage::Empty, now_ms) };
        Ok(Some(Step { next, ending }))
    }

    /// Partitions become part of the open transaction, or of one that begins by it. `None` if all are already.
    pub(crate) fn add_partitions(
        &self,
        who: Producing,
        partitions: impl IntoIterator<Item = TopicPartition>,
        limits: Limits,
        now_ms: i64,
    ) -> Result<Option<Self>, ResponseError> {
        self.check(who)?;
        let mut next = self.opened(now_ms);
        next.partitions.extend(partitions);
        if next.partitions.len() > limits.partitions_max {
            return Err(ResponseError::PolicyViolation);
        }
        Ok((next != *self).then_some(next))
    }

    /// Positions of `group` will become part of the open transaction, or of one that begins by it. `None` if it is one of
    /// its groups already.
    pub(crate) fn add_group(
        &self,
        who: Producing,
        group: &str,
        limits: Limits,
        now_ms: i64,
    ) -> Result<Option<Self>, ResponseError> {
        self.check(who)?;
        let mut next = self.opened(now_ms);
        next.groups.entry(group.to_owned()).or_default();
        if next.groups.len() > limits.partitions_max {
            return Err(ResponseError::PolicyViolation);
        }
        Ok((next != *self).then_some(next))
    }

    /// Positions of a group that was added; the last one of each partition counts.
    pub(crate) fn add_positions(
        &self,
        who: Producing,
        group: &str,
        positions: impl IntoIterator<Item = PositionCommit>,
        limits: Limits,
    ) -> Result<Option<Self>, ResponseError> {
        self.check(who)?;
        let mut next = self.clone();
        let of_group = next.groups.get_mut(group).ok_or(ResponseError::InvalidTxnState)?;
        of_group.extend(positions.into_iter().map(|position| (position.partition.clone(), position)));
        if next.groups.values().map(BTreeMap::len).sum::<usize>() > limits.partitions_max {
            return Err(ResponseError::PolicyViolation);
        }
        Ok((next != *self).then_some(next))
    }

    /// The producer ends its transaction. `None` if it has done so already, in the same way.
    pub(crate) fn end(&self, who: Producing, commit: bool, now_ms: i64) -> Result<Option<Step>, ResponseError> {
        self.check(who)?;
        let stage = if commit { Stage::CompleteCommit } else { Stage::CompleteAbort };
        if self.stage == stage {
            return Ok(None);
        }
        if self.stage != Stage::Ongoing {
            return Err(ResponseError::InvalidTxnState);
        }
        let positions = if commit { self.positions().cloned().collect() } else { Vec::new() };
        let ending = Ending { producer: self.producer, commit, partitions: self.partitions.clone(), positions };
        Ok(Some(Step { next: self.closed(stage, now_ms), ending: Some(ending) }))
    }

    /// Aborts a transaction whose time is up, and fences its producer.
    pub(crate) fn time_out(&self, now_ms: i64) -> Option<Step> {
        let is_due = self.stage == Stage::Ongoing && now_ms.saturating_sub(self.since_ms) >= i64::from(self.timeout_ms);
        is_due.then(|| {
            let ending = self.fencing_abort();
            let next = Self { producer: ending.producer, previous: None, ..self.closed(Stage::CompleteAbort, now_ms) };
            Step { next, ending: Some(ending) }
        })
    }

    /// Whether nobody has used the id for that long.
    pub(crate) fn is_unused(&self, for_ms: u64, now_ms: i64) -> bool {
        let unused_ms = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        self.stage != Stage::Ongoing && unused_ms >= for_ms
    }

    /// Whether a batch of `who` for `partition` belongs to the open transaction.
    pub(crate) fn may_produce(&self, who: Producing, partition: &TopicPartition) -> Result<(), ResponseError> {
        match self.check(who) {
            // What Kafka's brokers say to whoever produces.
            Err(ResponseError::ProducerFenced) => Err(ResponseError::InvalidProducerEpoch),
            Ok(()) if !self.partitions.contains(partition) => Err(ResponseError::InvalidTxnState),
            checked => checked,
        }
    }

    /// Partitions for which a position of `group` waits for the end of the transaction.
    pub(crate) fn pending_positions(&self, group: &str) -> impl Iterator<Item = &TopicPartition> {
        self.groups.get(group).into_iter().flat_map(BTreeMap::keys)
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = &PositionCommit> {
        self.groups.values().flat_map(BTreeMap::values)
    }

    fn check(&self, who: Producing) -> Result<(), ResponseError> {
        if who.id != self.producer.id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        if who.epoch != self.producer.epoch {
            return Err(ResponseError::ProducerFenced);
        }
        Ok(())
    }

    fn opened(&self, now_ms: i64) -> Self {
        match self.stage {
            Stage::Ongoing => self.clone(),
            _ => Self { stage: Stage::Ongoing, since_ms: now_ms, ..self.clone() },
        }
    }

    fn closed(&self, stage: Stage, now_ms: i64) -> Self {
        let (partitions, groups) = (BTreeSet::new(), BTreeMap::new());
        Self { stage, since_ms: now_ms, partitions, groups, ..*self }
    }

    /// An epoch is handed out up to [`EPOCH_LAST`] only, so that there is always one above it.
    fn fencing_abort(&self) -> Ending {
        let epoch = self.producer.epoch.saturating_add(1);
        let producer = Producing { epoch, ..self.producer };
        Ending { producer, commit: false, partitions: self.partitions.clone(), positions: Vec::new() }
    }
}
