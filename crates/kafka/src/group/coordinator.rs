//! All groups of this node, the calls that wait in them, and their timer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_log::{Error, KafkaLog};
use millstream_types::{MonotonicClock, Role, Roles, WallClock};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::GroupConfig;
use super::machine::{CallResult, ConsumerGroup, GroupState, JoinError, JoinResult, SyncResult};
use super::member::CallId;
use crate::namespace::Namespace;

/// Longest group id that a client may name, in bytes.
const GROUP_ID_MAX_BYTES: usize = 255;
/// Longest id of a member that is taken from a client.
const MEMBER_ID_MAX_BYTES: usize = 512;
/// Separates tenant and id in the log; no tenant's name contains it.
const TENANT_END: char = '/';

/// The client that calls, and its rights.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The groups and topics that the caller sees.
    pub(crate) namespace: Namespace,
    /// The roles of the calling client.
    pub roles: Roles,
    /// The client id from the request header.
    pub client_id: String,
    /// The address from which it calls.
    pub client_host: String,
}

impl Caller {
    /// The log's name for a group of this caller's tenant.
    ///
    /// # Errors
    /// [`ResponseError::InvalidGroupId`] if the id is empty or too long; [`ResponseError::GroupAuthorizationFailed`]
    /// if the caller is no reader.
    pub(crate) fn group(&self, id: &str) -> Result<String, ResponseError> {
        self.group_for(Role::Reader, id)
    }

    /// As [`Caller::group`], to change it from outside.
    pub(crate) fn group_to_change(&self, id: &str) -> Result<String, ResponseError> {
        self.group_for(Role::Admin, id)
    }

    fn group_for(&self, role: Role, id: &str) -> Result<String, ResponseError> {
        if !self.roles.has(role) {
            return Err(ResponseError::GroupAuthorizationFailed);
        }
        if id.is_empty() || id.len() > GROUP_ID_MAX_BYTES {
            return Err(ResponseError::InvalidGroupId);
        }
        Ok(format!("{}{TENANT_END}{id}", self.namespace.tenant))
    }

    /// The id of one of this tenant's groups, as clients know it.
    pub(crate) fn id_of<'g>(&self, group: &'g str) -> Option<&'g str> {
        tenant_and_id(group).filter(|(tenant, _)| *tenant == self.namespace.tenant.as_str()).map(|(_, id)| id)
    }
}

/// The tenant of a group in the log, and the id that its clients know; `None` if it is none of this listener's.
pub fn tenant_and_id(group: &str) -> Option<(&str, &str)> {
    group.split_once(TENANT_END)
}

enum WaitingCall {
    Join(oneshot::Sender<Result<JoinResult, JoinError>>),
    Sync(oneshot::Sender<Result<SyncResult, ResponseError>>),
}

/// A group and the calls that wait in it.
pub(crate) struct GroupEntry {
    pub(crate) group: ConsumerGroup,
    waiting: HashMap<CallId, WaitingCall>,
}

/// The groups of this node. One for each listener; its handlers may be called from any task.
pub struct GroupCoordinator {
    pub(crate) log: Arc<dyn KafkaLog>,
    pub(crate) config: GroupConfig,
    monotonic: Arc<dyn MonotonicClock>,
    wall: Arc<dyn WallClock>,
    groups: Mutex<BTreeMap<String, Arc<Mutex<GroupEntry>>>>,
    next_call_id: AtomicU64,
    /// When the timer wakes, in nanoseconds of the monotonic clock.
    wakes_at: AtomicU64,
    earlier: Notify,
    started: Duration,
    stopped: AtomicBool,
}

impl fmt::Debug for GroupCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCoordinator").field("groups", &self.groups.lock().len()).finish_non_exhaustive()
    }
}

impl GroupCoordinator {
    /// A coordinator without groups, for the positions in `log`. Sessions expire while [`GroupCoordinator::run`] runs.
    pub fn new(
        log: Arc<dyn KafkaLog>,
        config: GroupConfig,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Arc<Self> {
        let started = monotonic.now();
        Arc::new(Self {
            log,
            config,
            monotonic,
            wall,
            groups: Mutex::new(BTreeMap::new()),
            next_call_id: AtomicU64::new(0),
            wakes_at: AtomicU64::new(0),
            earlier: Notify::new(),
            started,
            stopped: AtomicBool::new(false),
        })
    }

    /// Ends rebalances, sessions and positions of long empty groups when they are due. Runs until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut look_through_at = self.now() + self.config.offsets_check_interval;
        loop {
            // The next due time is not known yet: a call that sets an earlier one from here on wakes the timer.
            self.wakes_at.store(u64::MAX, Ordering::SeqCst);
            let due = self.tick();
            if self.now() >= look_through_at {
                let this = self.clone();
                match tokio::task::spawn_blocking(move || this.drop_expired()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "positions of empty groups could not be dropped"),
                    Err(error) => tracing::error!(%error, "dropping positions of empty groups ended early"),
                }
                look_through_at = self.now() + self.config.offsets_check_interval;
            }
            let wakes_at = due.map_or(look_through_at, |due| due.min(look_through_at));
            let sleep = wakes_at.saturating_sub(self.now());
            self.wakes_at.fetch_min(wakes_at.as_nanos() as u64, Ordering::SeqCst);
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Answers all waiting and all later calls that this coordinator is not available.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let groups: Vec<_> = self.groups.lock().values().cloned().collect();
        groups.iter().for_each(|entry| entry.lock().waiting.clear());
    }

    /// True if no call may wait any more. Check it after adding a waiting call: [`GroupCoordinator::stop`] has either ended
    /// that call or is seen here.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Processes the due events of every group; returns the time of the next one.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let now = self.now();
        let groups: Vec<_> = self.groups.lock().values().cloned().collect();
        let due = groups.iter().filter_map(|entry| {
            let mut entry = entry.lock();
            let mut out = Vec::new();
            entry.group.tick(now, &mut out);
            entry.answer(out);
            entry.group.next_due()
        });
        due.min()
    }

    pub(crate) fn now(&self) -> Duration {
        self.monotonic.now()
    }

    /// True if `member_id`, which its group does not know, may belong to a member from before the start.
    pub(crate) fn may_be_from_before(&self, member_id: &str) -> bool {
        let is_id = !member_id.is_empty() && member_id.len() <= MEMBER_ID_MAX_BYTES;
        is_id && self.now().saturating_sub(self.started) < self.config.return_window
    }

    /// Tells a member from before the start to join again, which it does under its id. The error *unknown
    /// member* would end some clients.
    pub(crate) fn to_returning(&self, member_id: &str, error: ResponseError) -> ResponseError {
        match error {
            ResponseError::UnknownMemberId if self.may_be_from_before(member_id) => ResponseError::RebalanceInProgress,
            error => error,
        }
    }

    pub(crate) fn next_call_id(&self) -> CallId {
        self.next_call_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `act` on an existing group and answers the calls that it completes.
    pub(crate) fn within<T>(
        &self,
        group: &str,
        act: impl FnOnce(&mut GroupEntry, &mut Vec<CallResult>) -> T,
    ) -> Option<T> {
        let entry = self.groups.lock().get(group)?.clone();
        let mut entry = entry.lock();
        (entry.group.state() != GroupState::Dead).then(|| self.act(&mut entry, act))
    }

    /// As [`GroupCoordinator::within`], in a group that begins to exist by it.
    ///
    /// # Errors
    /// [`ResponseError::GroupMaxSizeReached`] if no further group may begin.
    pub(crate) fn within_new<T>(
        &self,
        group: &str,
        act: impl FnOnce(&mut GroupEntry, &mut Vec<CallResult>) -> T,
    ) -> Result<T, ResponseError> {
        let mut groups = self.groups.lock();
        let is_dead = groups.get(group).is_some_and(|entry| entry.lock().group.state() == GroupState::Dead);
        if is_dead {
            groups.remove(group);
        }
        if !groups.contains_key(group) && groups.len() >= self.config.groups_max {
            groups.retain(|name, entry| entry.lock().group.empty_since().is_none() || self.has_positions(name));
        }
        if !groups.contains_key(group) && groups.len() >= self.config.groups_max {
            let (groups, limit) = (groups.len(), self.config.groups_max);
            tracing::warn!(group, groups, limit, "no further group may begin: delete groups or raise groups_max");
            return Err(ResponseError::GroupMaxSizeReached);
        }
        let new = || {
            let group = ConsumerGroup::new(self.config.clone(), self.now());
            Arc::new(Mutex::new(GroupEntry { group, waiting: HashMap::new() }))
        };
        let entry = groups.entry(group.to_owned()).or_insert_with(new).clone();
        // Locked before the map is unlocked, so that nobody can end the group in between.
        let mut entry = entry.lock();
        drop(groups);
        Ok(self.act(&mut entry, act))
    }

    fn act<T>(&self, entry: &mut GroupEntry, act: impl FnOnce(&mut GroupEntry, &mut Vec<CallResult>) -> T) -> T {
        let mut out = Vec::new();
        let result = act(entry, &mut out);
        entry.answer(out);
        let due = entry.group.next_due().map_or(u64::MAX, |due| due.as_nanos() as u64);
        if due < self.wakes_at.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
        result
    }

    /// Applies `look` to each group in memory.
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&str, &ConsumerGroup) -> T) -> Vec<T> {
        let groups: Vec<_> = self.groups.lock().iter().map(|(name, entry)| (name.clone(), entry.clone())).collect();
        groups.iter().map(|(name, entry)| look(name, &entry.lock().group)).collect()
    }

    /// Removes a group that [`ConsumerGroup::end`] has ended.
    pub(crate) fn remove_dead(&self, group: &str) {
        let mut groups = self.groups.lock();
        if groups.get(group).is_some_and(|entry| entry.lock().group.state() == GroupState::Dead) {
            groups.remove(group);
        }
    }

    fn has_positions(&self, group: &str) -> bool {
        self.log.positions(group).is_ok_and(|positions| !positions.is_empty())
    }

    /// Drops the positions of groups that have been empty, and have not committed, for the time of retention, and
    /// groups that are empty and have none.
    pub(crate) fn drop_expired(&self) -> Result<(), Error> {
        let retention = self.config.offsets_retention;
        let now = self.now();
        let oldest_ms = self.wall.now_ms().saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        for group in self.log.groups() {
            // A group that was not used since the start counts as empty since the start.
            let empty_since = match self.within(&group, |entry, _| entry.group.empty_since()) {
                Some(None) => continue,
                Some(Some(since)) => since,
                None => self.started,
            };
            if now.saturating_sub(empty_since) < retention || tenant_and_id(&group).is_none() {
                continue;
            }
            let expired = self.log.positions(&group)?.into_iter().filter(|found| found.committed_ms <= oldest_ms);
            let expired: Vec<_> = expired.map(|found| found.partition).collect();
            if !expired.is_empty() {
                tracing::info!(group, positions = expired.len(), "positions of an empty group have expired");
                self.log.forget_positions(&group, &expired)?;
            }
        }
        let empty = self.look(|name, group| group.empty_since().is_some().then(|| name.to_owned()));
        for name in empty.into_iter().flatten().filter(|name| !self.has_positions(name)) {
            // The group may have got a member meanwhile: then it is not empty, and stays.
            self.within(&name, |entry, _| entry.group.end().ok());
            self.remove_dead(&name);
        }
        Ok(())
    }
}

impl GroupEntry {
    /// A join will be answered under `call_id`.
    pub(crate) fn await_join(&mut self, call_id: CallId) -> oneshot::Receiver<Result<JoinResult, JoinError>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(call_id, WaitingCall::Join(sender));
        receiver
    }

    /// A sync will be answered under `call_id`.
    pub(crate) fn await_sync(&mut self, call_id: CallId) -> oneshot::Receiver<Result<SyncResult, ResponseError>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(call_id, WaitingCall::Sync(sender));
        receiver
    }

    /// A client that no longer listens will miss its heartbeats.
    fn answer(&mut self, answers: Vec<CallResult>) {
        for answer in answers {
            match answer {
                CallResult::Join(call_id, result) => {
                    if let Some(WaitingCall::Join(sender)) = self.waiting.remove(&call_id) {
                        sender.send(result).ok();
                    }
                }
                CallResult::Sync(call_id, result) => {
                    if let Some(WaitingCall::Sync(sender)) = self.waiting.remove(&call_id) {
                        sender.send(result).ok();
                    }
                }
            }
        }
    }
}
