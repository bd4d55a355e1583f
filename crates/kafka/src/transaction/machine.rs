//! One transactional id as a state machine: it takes a request and the time, and returns the state to store. No I/O, no
//! clock, no thread. The state changes once the caller has stored it.
//!
//! ```text
//!              partitions or groups are added             EndTxn, or time is up
//!    Empty ──────────────────────────────────► Ongoing ──────────────────────────► CompleteCommit, CompleteAbort
//!      ▲                                          ▲                                            │
//!      └── InitProducerId, from any state         └──────── partitions or groups are added ────┘
//! ```
//!
//! Clients of version 2 of the protocol (KIP-890) have each transaction in an epoch of its own: EndTxn hands out the next one.
//!
//! Invariants
//! - Producer id and epoch are those of the last answer to InitProducerId or EndTxn; a request that names others changes nothing.
//! - An epoch is never handed out twice. An epoch that has timed out, or is taken over in an open transaction,
//!   is followed by one that no producer gets: the markers that abort the transaction carry it, and so fence the
//!   old one in every partition. In version 2 the markers carry the epoch that the producer gets next.
//! - Only `Ongoing` has partitions and groups.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use millstream_log::PositionCommit;
use millstream_types::TopicPartition;

/// The last epoch that is handed out; the one above it is for fencing alone.
const EPOCH_LAST: i16 = i16::MAX - 1;

/// The state of a transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionState {
    /// The producer has begun no transaction yet.
    Empty,
    Ongoing,
    /// Its last transaction was committed.
    CompleteCommit,
    /// Its last transaction was aborted.
    CompleteAbort,
}

/// The producer id and the epoch that InitProducerId or EndTxn has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerIdAndEpoch {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// The end of a transaction: the markers and positions that the log appends along with the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransactionEnd {
    /// The producer that the markers name.
    pub(crate) producer: ProducerIdAndEpoch,
    pub(crate) commit: bool,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// To be committed; none if it is aborted.
    pub(crate) positions: Vec<PositionCommit>,
}

/// The state change that a request causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    /// To be stored, and true from then on.
    pub(crate) next: Transaction,
    /// The end of the open transaction, to be stored with it.
    pub(crate) ending: Option<TransactionEnd>,
}

/// The limits of one transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactionLimits {
    /// Partitions, and positions of all groups, each.
    pub(crate) partitions_max: usize,
}

/// A transactional id and its transaction. See the module for its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) producer: ProducerIdAndEpoch,
    /// The id and epoch before, if the producer named them itself: if it asks again, it has missed the answer. `None` once it has
    /// begun or ended a transaction under those that it has now.
    pub(crate) previous: Option<ProducerIdAndEpoch>,
    pub(crate) timeout_ms: u32,
    pub(crate) stage: TransactionState,
    /// When the open transaction began, or else when the last change was made; wall clock.
    pub(crate) since_ms: i64,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// Positions to be committed, by group.
    pub(crate) groups: BTreeMap<String, BTreeMap<TopicPartition, PositionCommit>>,
}

impl Transaction {
    /// The state of a new transactional id.
    pub(crate) fn new(producer_id: i64, timeout_ms: u32, now_ms: i64) -> Self {
        Self {
            producer: ProducerIdAndEpoch { id: producer_id, epoch: 0 },
            previous: None,
            timeout_ms,
            stage: TransactionState::Empty,
            since_ms: now_ms,
            partitions: BTreeSet::new(),
            groups: BTreeMap::new(),
        }
    }

    /// A producer takes the id over, or returns to it with its previous id and epoch (`given`). It gets the next
    /// epoch, or a new producer id (`fresh`) once the epochs are used up. An open transaction is aborted. `None` if
    /// the producer has the next epoch already.
    pub(crate) fn take_over(
        &self,
        given: Option<ProducerIdAndEpoch>,
        timeout_ms: u32,
        now_ms: i64,
        fresh: impl FnOnce() -> Option<i64>,
    ) -> Result<Option<Transition>, ResponseError> {
        if let Some(given) = given.filter(|given| *given != self.producer) {
            return if self.previous == Some(given) { Ok(None) } else { Err(ResponseError::ProducerFenced) };
        }
        let ending = (self.stage == TransactionState::Ongoing).then(|| self.fencing_abort());
        let used = ending.as_ref().map_or(self.producer.epoch, |ending| ending.producer.epoch);
        let producer = self.after_epoch(used, fresh)?;
        let next = Self { producer, previous: given, timeout_ms, ..self.closed(TransactionState::Empty, now_ms) };
        Ok(Some(Transition { next, ending }))
    }

    /// Adds partitions to the open transaction, or to one that begins now. `None` if it has all of them already.
    pub(crate) fn add_partitions(
        &self,
        who: ProducerIdAndEpoch,
        partitions: impl IntoIterator<Item = TopicPartition>,
        limits: TransactionLimits,
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

    /// Adds a group, whose positions will follow, to the open transaction or to one that begins now. `None` if
    /// it has the group already.
    pub(crate) fn add_group(
        &self,
        who: ProducerIdAndEpoch,
        group: &str,
        limits: TransactionLimits,
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

    /// Positions of a group that was added, or is added now (`adds_group_ms`); the last one of each partition counts.
    pub(crate) fn add_positions(
        &self,
        who: ProducerIdAndEpoch,
        group: &str,
        positions: impl IntoIterator<Item = PositionCommit>,
        limits: TransactionLimits,
        adds_group_ms: Option<i64>,
    ) -> Result<Option<Self>, ResponseError> {
        self.check(who)?;
        let with_group = adds_group_ms.map(|now_ms| self.add_group(who, group, limits, now_ms)).transpose()?;
        let mut next = with_group.flatten().unwrap_or_else(|| self.clone());
        let of_group = next.groups.get_mut(group).ok_or(ResponseError::InvalidTxnState)?;
        of_group.extend(positions.into_iter().map(|position| (position.partition.clone(), position)));
        if next.groups.values().map(BTreeMap::len).sum::<usize>() > limits.partitions_max {
            return Err(ResponseError::PolicyViolation);
        }
        Ok((next != *self).then_some(next))
    }

    /// The producer ends its transaction. `None` if it has done so already, in the same way.
    pub(crate) fn end(
        &self,
        who: ProducerIdAndEpoch,
        commit: bool,
        now_ms: i64,
    ) -> Result<Option<Transition>, ResponseError> {
        self.check(who)?;
        let stage = if commit { TransactionState::CompleteCommit } else { TransactionState::CompleteAbort };
        if self.stage == stage {
            return Ok(None);
        }
        if self.stage != TransactionState::Ongoing {
            return Err(ResponseError::InvalidTxnState);
        }
        let ending = self.ending(self.producer, commit);
        Ok(Some(Transition { next: Self { previous: None, ..self.closed(stage, now_ms) }, ending: Some(ending) }))
    }

    /// As [`Transaction::end`], and the producer goes on under the next epoch, or under a new producer id (`fresh`) once the
    /// epochs are used up: what it has sent in this transaction and comes late is refused. It may abort one that it has not begun
    /// here, as its first request may have been lost.
    pub(crate) fn end_epoch(
        &self,
        who: ProducerIdAndEpoch,
        commit: bool,
        now_ms: i64,
        fresh: impl FnOnce() -> Option<i64>,
    ) -> Result<Option<Transition>, ResponseError> {
        let stage = if commit { TransactionState::CompleteCommit } else { TransactionState::CompleteAbort };
        let has_ended = matches!(self.stage, TransactionState::CompleteCommit | TransactionState::CompleteAbort);
        if has_ended && self.previous == Some(who) {
            return if self.stage == stage { Ok(None) } else { Err(ResponseError::InvalidTxnState) };
        }
        self.check(who)?;
        let is_open = self.stage == TransactionState::Ongoing;
        if commit && !is_open {
            return Err(ResponseError::InvalidTxnState);
        }
        let producer = self.after_epoch(self.producer.epoch, fresh)?;
        let next = Self { producer, previous: Some(who), ..self.closed(stage, now_ms) };
        Ok(Some(Transition { next, ending: is_open.then(|| self.ending(self.fencing(), commit)) }))
    }

    /// Aborts a transaction whose time is up, and fences its producer.
    pub(crate) fn time_out(&self, now_ms: i64) -> Option<Transition> {
        let is_due = self.stage == TransactionState::Ongoing
            && now_ms.saturating_sub(self.since_ms) >= i64::from(self.timeout_ms);
        is_due.then(|| {
            let ending = self.fencing_abort();
            let next = Self {
                producer: ending.producer,
                previous: None,
                ..self.closed(TransactionState::CompleteAbort, now_ms)
            };
            Transition { next, ending: Some(ending) }
        })
    }

    /// True if no producer has used the id for `for_ms`.
    pub(crate) fn is_unused(&self, for_ms: u64, now_ms: i64) -> bool {
        let unused_ms = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        self.stage != TransactionState::Ongoing && unused_ms >= for_ms
    }

    /// Checks that a batch of `who` for `partition` belongs to the open transaction.
    pub(crate) fn may_produce(&self, who: ProducerIdAndEpoch, partition: &TopicPartition) -> Result<(), ResponseError> {
        match self.check(who) {
            // Kafka's brokers answer producers with this error.
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

    fn check(&self, who: ProducerIdAndEpoch) -> Result<(), ResponseError> {
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
            TransactionState::Ongoing => self.clone(),
            _ => Self { stage: TransactionState::Ongoing, since_ms: now_ms, previous: None, ..self.clone() },
        }
    }

    fn closed(&self, stage: TransactionState, now_ms: i64) -> Self {
        let (partitions, groups) = (BTreeSet::new(), BTreeMap::new());
        Self { stage, since_ms: now_ms, partitions, groups, ..*self }
    }

    fn fencing_abort(&self) -> TransactionEnd {
        self.ending(self.fencing(), false)
    }

    /// Id and epoch that end what the producer may still send. An epoch is handed out up to [`EPOCH_LAST`] only, so that there is
    /// always one above it.
    fn fencing(&self) -> ProducerIdAndEpoch {
        ProducerIdAndEpoch { epoch: self.producer.epoch.saturating_add(1), ..self.producer }
    }

    /// The id and epoch that are handed out after `used`.
    fn after_epoch(&self, used: i16, fresh: impl FnOnce() -> Option<i64>) -> Result<ProducerIdAndEpoch, ResponseError> {
        if used >= EPOCH_LAST {
            return Ok(ProducerIdAndEpoch { id: fresh().ok_or(ResponseError::UnknownServerError)?, epoch: 0 });
        }
        Ok(ProducerIdAndEpoch { epoch: used + 1, ..self.producer })
    }

    fn ending(&self, producer: ProducerIdAndEpoch, commit: bool) -> TransactionEnd {
        let positions = if commit { self.positions().cloned().collect() } else { Vec::new() };
        TransactionEnd { producer, commit, partitions: self.partitions.clone(), positions }
    }
}
