//! All transactional ids of this broker: one change of each at a time, stored before it is true, and their timeouts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_log::{AckLevel, Done, EndTransaction, Error, KafkaLog, Reply, is_transactional_producer, reply};
use millstream_types::{Record, TenantId, TopicPartition, WallClock};
use parking_lot::RwLock;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{MissedTickBehavior, interval};

use super::ids::{IdLimits, IdSlot, TransactionalIds, Unused, tenant_of};
use super::machine::{ProducerIdAndEpoch, Transaction, TransactionEnd, TransactionLimits, Transition};
use super::record::encode;
use super::store::{LoadError, Store};
use crate::KafkaConfig;
use crate::api_error::ApiError;
use crate::group::to_client;

/// Interval between two searches for transactions whose time is up.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of checks between two searches for unused ids.
const EXPIRATION_CHECKS: u64 = 600;

/// The transactional ids of this broker.
pub(crate) struct TransactionCoordinator {
    log: Arc<dyn KafkaLog>,
    store: Store,
    pub(crate) limits: TransactionLimits,
    pub(crate) timeout_max_ms: u32,
    id_limits: IdLimits,
    expiration_ms: u64,
    wall: Arc<dyn WallClock>,
    /// `None` until `_transactions` is read.
    ids: RwLock<Option<TransactionalIds>>,
}

/// The permit to change a transactional id. A change that has begun must be finished: run it in a task of its own.
pub(crate) struct ChangePermit {
    coordinator: Arc<TransactionCoordinator>,
    slot: Arc<IdSlot>,
    _permit: OwnedSemaphorePermit,
}

/// The transition that a request causes, if it changes anything; the id may not exist.
pub(crate) type TransitionResult = Result<Option<Transition>, ResponseError>;

impl TransactionCoordinator {
    /// A coordinator that knows nothing until it has loaded.
    pub(crate) fn new(log: Arc<dyn KafkaLog>, config: &KafkaConfig, wall: Arc<dyn WallClock>) -> Arc<Self> {
        Arc::new(Self {
            store: Store::new(log.clone()),
            log,
            limits: TransactionLimits { partitions_max: config.transaction_partitions_max },
            timeout_max_ms: config.transaction_timeout_max_ms,
            id_limits: IdLimits {
                ids_max: config.transactional_ids_max,
                per_tenant_max: config.transactional_ids_per_tenant_max,
            },
            expiration_ms: config.transactional_id_expiration_ms,
            wall,
            ids: RwLock::new(None),
        })
    }

    /// Loads the stored ids. If that fails, transactions are not served, and all else is.
    pub(crate) async fn load(self: &Arc<Self>) {
        let this = self.clone();
        match tokio::task::spawn_blocking(move || this.read_stored()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "transactions are not served: those stored cannot be read"),
            Err(error) => tracing::error!(%error, "transactions are not served: reading them ended early"),
        }
    }

    /// Aborts transactions whose time is up, and forgets unused ids. Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for check in 0_u64.. {
            checks.tick().await;
            self.end_overdue().await;
            if check.is_multiple_of(EXPIRATION_CHECKS) {
                self.forget_unused().await;
            }
        }
    }

    fn read_stored(&self) -> Result<(), LoadError> {
        let mut ids = TransactionalIds::new(self.id_limits);
        self.store.load()?.into_iter().for_each(|(key, transaction)| ids.load(key, transaction));
        *self.ids.write() = Some(ids);
        Ok(())
    }

    /// True if a producer id belongs to a transactional id, so that only its transactions may use it; also if that
    /// was forgotten.
    pub(crate) fn is_transactional(&self, producer_id: i64) -> bool {
        is_transactional_producer(producer_id)
            || self.ids.read().as_ref().is_some_and(|ids| ids.has_producer(producer_id))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }

    /// True if a batch of `who` for `partition` has to wait until the partition is added to the transaction.
    pub(crate) fn lacks(&self, key: &str, who: ProducerIdAndEpoch, partition: &TopicPartition) -> bool {
        let Ok(Some(slot)) = self.find(key) else { return false };
        let state = slot.state.lock();
        let checked = state.now.as_ref().map(|now| now.may_produce(who, partition));
        checked == Some(Err(ResponseError::InvalidTxnState))
    }

    /// Appends a batch of `who` for `partition`, by `append`, which must not wait: the transaction cannot end meanwhile.
    /// `not_added` is the error for a partition that is not in it.
    pub(crate) fn produce<T>(
        &self,
        key: &str,
        who: ProducerIdAndEpoch,
        partition: &TopicPartition,
        not_added: ResponseError,
        append: impl FnOnce() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let refuse = |error: ResponseError| {
            let ProducerIdAndEpoch { id, epoch } = who;
            let cause = match error {
                ResponseError::InvalidTxnState | ResponseError::TransactionAbortable => {
                    "it was not begun, has ended, or the partition was not added to it"
                }
                ResponseError::InvalidProducerEpoch => "another producer has taken over its transactional id",
                ResponseError::InvalidProducerIdMapping => "the transactional id is unknown, or another producer's",
                ResponseError::NotEnoughReplicas => "it is ending; send the batch again",
                _ => "its transactional id cannot be used now; send the batch again",
            };
            let why = format!("producer {id} of epoch {epoch} has no open transaction with {partition} in it: {cause}");
            ApiError::new(error, why)
        };
        let slot = self.find(key).map_err(refuse)?.ok_or_else(|| refuse(ResponseError::InvalidProducerIdMapping))?;
        let state = slot.state.lock();
        let now = state.now.as_ref().ok_or_else(|| refuse(ResponseError::InvalidProducerIdMapping))?;
        now.may_produce(who, partition).map_err(|error| match error {
            ResponseError::InvalidTxnState => refuse(not_added),
            error => refuse(error),
        })?;
        if state.next.as_ref().is_some_and(|step| step.ending.is_some()) {
            // Clients try it again, and find out how it has ended.
            return Err(refuse(ResponseError::NotEnoughReplicas));
        }
        append()
    }

    /// Partitions for which an open transaction has a position of `group`.
    pub(crate) fn pending_positions(&self, group: &str) -> HashSet<TopicPartition> {
        let mut pending = HashSet::new();
        for slot in self.slots() {
            let state = slot.state.lock();
            let next = state.next.as_ref().map(|step| &step.next);
            state.now.iter().chain(next).for_each(|of| pending.extend(of.pending_positions(group).cloned()));
        }
        pending
    }

    /// The transactions of a tenant, by the transactional ids that its clients use.
    pub(crate) fn of_tenant(&self, tenant: &TenantId) -> Result<BTreeMap<String, Transaction>, ResponseError> {
        let ids = self.ids.read();
        let ids = ids.as_ref().ok_or(ResponseError::CoordinatorNotAvailable)?;
        let mut found = BTreeMap::new();
        for slot in ids.of_tenant(tenant.as_str()) {
            if let (Some((_, id)), Some(now)) = (slot.key.split_once('/'), slot.state.lock().now.clone()) {
                found.insert(id.to_owned(), now);
            }
        }
        Ok(found)
    }

    /// The turn to change an id that exists.
    pub(crate) async fn turn(self: &Arc<Self>, key: &str) -> Result<ChangePermit, ResponseError> {
        loop {
            let slot = self.find(key)?.ok_or(ResponseError::InvalidProducerIdMapping)?;
            if let Some(turn) = self.take_turn(slot).await? {
                return Ok(turn);
            }
        }
    }

    /// The turn to change an id that may begin to exist by it. If its tenant has all that it may have, the one without an open
    /// transaction that nobody has used for longest is forgotten.
    ///
    /// # Errors
    /// [`ResponseError::PolicyViolation`] if all of them have an open transaction, [`ResponseError::ConcurrentTransactions`] if
    /// the others are being changed; those of the log.
    pub(crate) async fn turn_of_new(self: &Arc<Self>, key: &str) -> Result<ChangePermit, ResponseError> {
        let this = self.clone();
        let created = tokio::task::spawn_blocking(move || this.store.create()).await;
        created.unwrap_or(Err(Error::Stopped)).map_err(|error| to_client(&error))?;
        loop {
            let Some(slot) = self.find_or_begin(key)? else {
                self.make_room(key).await?;
                continue;
            };
            if let Some(turn) = self.take_turn(slot).await? {
                return Ok(turn);
            }
        }
    }

    async fn take_turn(self: &Arc<Self>, slot: Arc<IdSlot>) -> Result<Option<ChangePermit>, ResponseError> {
        let permit = slot.turn.clone().acquire_owned().await;
        let permit = permit.map_err(|_| ResponseError::CoordinatorNotAvailable)?;
        let is_gone = slot.state.lock().is_gone;
        Ok((!is_gone).then(|| ChangePermit { coordinator: self.clone(), slot, _permit: permit }))
    }

    fn find(&self, key: &str) -> Result<Option<Arc<IdSlot>>, ResponseError> {
        let ids = self.ids.read();
        Ok(ids.as_ref().ok_or(ResponseError::CoordinatorNotAvailable)?.get(key).cloned())
    }

    fn find_or_begin(&self, key: &str) -> Result<Option<Arc<IdSlot>>, ResponseError> {
        let mut ids = self.ids.write();
        let ids = ids.as_mut().ok_or(ResponseError::CoordinatorNotAvailable)?;
        Ok(ids.get(key).cloned().or_else(|| ids.begin(key)))
    }

    /// Forgets an id of the tenant of `key`, which gets its place.
    async fn make_room(self: &Arc<Self>, key: &str) -> Result<(), ResponseError> {
        let tenant = tenant_of(key);
        let (unused, (of_tenant, all)) = {
            let ids = self.ids.read();
            let ids = ids.as_ref().ok_or(ResponseError::CoordinatorNotAvailable)?;
            (ids.longest_unused(tenant), ids.counts(tenant))
        };
        match unused {
            Unused::Found(slot, permit) => {
                let permit = ChangePermit { coordinator: self.clone(), slot, _permit: permit };
                let old = permit.slot.key.clone();
                permit.forget(Some(key)).await.map_err(|error| to_client(&error))?;
                tracing::info!(transactional_id = old, new = key, "an unused transactional id gave way to a new one");
                Ok(())
            }
            Unused::Busy => Err(ResponseError::ConcurrentTransactions),
            Unused::None => {
                let IdLimits { ids_max, per_tenant_max } = self.id_limits;
                tracing::warn!(
                    transactional_id = key,
                    "refused (POLICY_VIOLATION): tenant '{tenant}' has {of_tenant} transactional ids, all with an open transaction, of {all}; it may have kafka.transactional_ids_per_tenant_max = {per_tenant_max}, and as many as it leaves free of kafka.transactional_ids_max = {ids_max}; end transactions or raise the limits"
                );
                Err(ResponseError::PolicyViolation)
            }
        }
    }

    fn slots(&self) -> Vec<Arc<IdSlot>> {
        self.ids.read().iter().flat_map(TransactionalIds::slots).cloned().collect()
    }

    async fn end_overdue(self: &Arc<Self>) {
        let now_ms = self.now_ms();
        for slot in self.slots() {
            let is_due = slot.state.lock().now.as_ref().is_some_and(|now| now.time_out(now_ms).is_some());
            if !is_due {
                continue;
            }
            let Ok(turn) = self.turn(&slot.key).await else { continue };
            let ended = turn.change(|now| Ok(now.and_then(|now| now.time_out(now_ms)))).await;
            let key = &slot.key;
            match ended {
                Ok(_) => tracing::info!(transactional_id = key, "a transaction was aborted: its time was up"),
                Err(error) => {
                    tracing::warn!(transactional_id = key, %error, "a transaction could not be aborted in time")
                }
            }
        }
    }

    async fn forget_unused(self: &Arc<Self>) {
        let now_ms = self.now_ms();
        let is_unused =
            |slot: &IdSlot| slot.state.lock().now.as_ref().is_some_and(|now| now.is_unused(self.expiration_ms, now_ms));
        for slot in self.slots().into_iter().filter(|slot| is_unused(slot)) {
            let Ok(turn) = self.turn(&slot.key).await else { continue };
            if is_unused(&slot)
                && let Err(error) = turn.forget(None).await
            {
                tracing::warn!(transactional_id = slot.key, %error, "an unused transactional id could not be forgotten");
            }
        }
    }

    /// Hands a step to the log: all of it becomes stored, or nothing.
    fn store(&self, key: &str, step: &Transition) -> Result<Reply<()>, Error> {
        let (done, stored) = reply();
        match &step.ending {
            Some(ending) => self.append_end(key, &step.next, ending, done)?,
            None => self.store.append(key, Some(&step.next), Done::call(|stored| done.finish(stored.map(drop))))?,
        }
        Ok(stored)
    }

    fn append_end(&self, key: &str, next: &Transaction, ending: &TransactionEnd, done: Done<()>) -> Result<(), Error> {
        let value = encode(next);
        let record = Record { key: Some(key.as_bytes()), value: Some(&value), ..Record::default() };
        let end = EndTransaction {
            producer_id: ending.producer.id,
            producer_epoch: ending.producer.epoch,
            partitions: ending.partitions.iter().cloned().collect(),
            commit: ending.commit,
            positions: ending.positions.clone(),
            records: vec![(self.store.partition_of(key), vec![record])],
        };
        self.log.end_transaction(&end, AckLevel::Synced, Done::call(|stored| done.finish(stored.map(drop))))
    }
}

impl ChangePermit {
    /// Decides and stores; answers what the id is then.
    pub(crate) async fn change(
        self,
        decide: impl FnOnce(Option<&Transaction>) -> TransitionResult,
    ) -> Result<Transaction, ResponseError> {
        let begun = self.begin(decide);
        self.finish(begun).await
    }

    /// Decides the transition and hands it to the log.
    pub(crate) fn begin(
        &self,
        decide: impl FnOnce(Option<&Transaction>) -> TransitionResult,
    ) -> Result<Option<Reply<()>>, ResponseError> {
        let mut state = self.slot.state.lock();
        let Some(step) = decide(state.now.as_ref())? else { return Ok(None) };
        let stored = self.coordinator.store(&self.slot.key, &step).map_err(|error| to_client(&error))?;
        state.next = Some(step);
        Ok(Some(stored))
    }

    /// Waits until it is stored; answers what the id is then.
    pub(crate) async fn finish(
        self,
        begun: Result<Option<Reply<()>>, ResponseError>,
    ) -> Result<Transaction, ResponseError> {
        let stored = match begun {
            Ok(Some(stored)) => stored.await.map_err(|error| to_client(&error)),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let now = {
            let mut state = self.slot.state.lock();
            let next = state.next.take().filter(|_| stored.is_ok());
            let old = state.now.as_ref().map(|now| now.producer.id);
            if let Some(step) = next {
                state.now = Some(step.next);
            }
            let now = state.now.clone();
            drop(state);
            self.note_producer(old, now.as_ref().map(|now| now.producer.id));
            now
        };
        if now.is_none() {
            self.remove(None);
        }
        stored?;
        now.ok_or(ResponseError::InvalidProducerIdMapping)
    }

    /// Removes an id that is no longer used; `successor`, if there is one, gets its place.
    async fn forget(self, successor: Option<&str>) -> Result<(), Error> {
        let (done, stored) = reply();
        self.coordinator.store.append(&self.slot.key, None, done)?;
        stored.await?;
        self.remove(successor);
        Ok(())
    }

    fn remove(&self, successor: Option<&str>) {
        let old = {
            let mut state = self.slot.state.lock();
            state.is_gone = true;
            state.now.take().map(|now| now.producer.id)
        };
        if let Some(ids) = self.coordinator.ids.write().as_mut() {
            ids.remove(&self.slot.key, successor);
        }
        self.note_producer(old, None);
    }

    /// The id's producer id has become another.
    fn note_producer(&self, old: Option<i64>, new: Option<i64>) {
        if old == new {
            return;
        }
        if let Some(ids) = self.coordinator.ids.write().as_mut() {
            ids.change_producer(old, new);
        }
    }
}
