//! All groups of this node, the calls that wait in them, and their timer.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_log::{Error, KafkaLog, KnownGroup};
use millstream_types::{MonotonicClock, Role, Roles, WallClock};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::GroupConfig;
use super::entry::GroupEntry;
use super::errors::to_client;
use super::machine::{CallResult, ClassicGroup};
use super::member::CallId;
use super::protocol::Group;
use super::registry::{GroupRegistry, NotBegun, Now, TENANT_END, tenant_and_id};
use crate::namespace::Namespace;

/// Longest group id that a client may name, in bytes.
const GROUP_ID_MAX_BYTES: usize = 255;
/// Longest id of a member that is taken from a client.
pub(crate) const MEMBER_ID_MAX_BYTES: usize = 512;
/// Number of attempts to begin a group in the place of another one.
const BEGIN_ATTEMPTS: usize = 4;

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
    /// if the caller is no reader, or limited to other groups.
    pub(crate) fn group(&self, id: &str) -> Result<String, ResponseError> {
        self.group_for(Role::Reader, id)
    }

    /// As [`Caller::group`], to change it from outside.
    pub(crate) fn group_to_change(&self, id: &str) -> Result<String, ResponseError> {
        self.group_for(Role::Admin, id)
    }

    fn group_for(&self, role: Role, id: &str) -> Result<String, ResponseError> {
        if !self.roles.has(role) || !self.namespace.has_group(id) {
            return Err(ResponseError::GroupAuthorizationFailed);
        }
        if id.is_empty() || id.len() > GROUP_ID_MAX_BYTES {
            return Err(ResponseError::InvalidGroupId);
        }
        Ok(format!("{}{TENANT_END}{id}", self.namespace.tenant))
    }

    /// The id of one of this tenant's groups that the caller may use, as clients know it.
    pub(crate) fn id_of<'g>(&self, group: &'g str) -> Option<&'g str> {
        let own = tenant_and_id(group).filter(|(tenant, _)| *tenant == self.namespace.tenant.as_str());
        own.map(|(_, id)| id).filter(|id| self.namespace.has_group(id))
    }
}

/// The groups of this node. One for each listener; its handlers may be called from any task.
pub struct GroupCoordinator {
    pub(crate) log: Arc<dyn KafkaLog>,
    pub(crate) config: GroupConfig,
    monotonic: Arc<dyn MonotonicClock>,
    wall: Arc<dyn WallClock>,
    groups: Mutex<GroupRegistry>,
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
    /// A coordinator of the groups that have positions in `log`; none has members. Sessions expire while [`GroupCoordinator::run`] runs.
    pub fn new(
        log: Arc<dyn KafkaLog>,
        config: GroupConfig,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Arc<Self> {
        let started = monotonic.now();
        let groups = Mutex::new(GroupRegistry::new(&config, log.groups()));
        Arc::new(Self {
            log,
            config,
            monotonic,
            wall,
            groups,
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
        self.entries().iter().for_each(|entry| entry.lock().end_calls());
    }

    /// True if no call may wait any more. Check it after adding a waiting call: [`GroupCoordinator::stop`] has either ended
    /// that call or is seen here.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Processes the due events of every group; returns the time of the next one.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let now = self.now();
        let due = self.entries();
        let due = due.iter().filter_map(|entry| {
            let mut entry = entry.lock();
            let mut out = Vec::new();
            entry.group.tick(now, &mut out);
            entry.answer(out);
            entry.group.next_due()
        });
        due.min()
    }

    fn entries(&self) -> Vec<Arc<Mutex<GroupEntry>>> {
        self.groups.lock().in_use().map(|(_, entry)| entry.clone()).collect()
    }

    pub(crate) fn now(&self) -> Duration {
        self.monotonic.now()
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        self.wall.now_ms()
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
        let entry = self.groups.lock().get(group)?;
        let mut entry = entry.lock();
        (!entry.group.is_dead()).then(|| self.act(&mut entry, act))
    }

    /// As [`GroupCoordinator::within`], in a group that begins to exist by it. If its tenant has all the groups that it may
    /// have, the one that nobody has used for longest gives way.
    ///
    /// # Errors
    /// [`ResponseError::PolicyViolation`] if all of them have members; [`ResponseError::CoordinatorLoadInProgress`] if the
    /// group is being deleted, or another one cannot give way yet.
    pub(crate) async fn within_new<T>(
        self: &Arc<Self>,
        group: &str,
        mut act: impl FnOnce(&mut GroupEntry, &mut Vec<CallResult>) -> T,
    ) -> Result<T, ResponseError> {
        for _ in 0..BEGIN_ATTEMPTS {
            let unmade = match self.try_within_new(group, act) {
                Ok(result) => return Ok(result),
                Err(unmade) => unmade,
            };
            match unmade.0 {
                NotBegun::Leaving => break,
                NotBegun::Full => self.make_room(group).await?,
            }
            act = unmade.1;
        }
        Err(ResponseError::CoordinatorLoadInProgress)
    }

    /// As [`GroupCoordinator::within_new`], or returns what was not done.
    fn try_within_new<T, F>(&self, group: &str, act: F) -> Result<T, (NotBegun, F)>
    where
        F: FnOnce(&mut GroupEntry, &mut Vec<CallResult>) -> T,
    {
        let mut groups = self.groups.lock();
        let entry = match groups.get_or_begin(group, |committed_ms| self.new_entry(committed_ms)) {
            Ok(entry) => entry,
            Err(not_begun) => return Err((not_begun, act)),
        };
        // Locked before the registry is unlocked, so that nobody can end the group in between.
        let mut entry = entry.lock();
        drop(groups);
        Ok(self.act(&mut entry, act))
    }

    fn new_entry(&self, committed_ms: i64) -> GroupEntry {
        GroupEntry::new(Group::Classic(ClassicGroup::new(self.config.clone(), self.now())), committed_ms)
    }

    /// Begins `group` in the place of one of its tenant's that has no members, whose positions are forgotten.
    async fn make_room(self: &Arc<Self>, group: &str) -> Result<(), ResponseError> {
        let tenant = tenant_and_id(group).map_or("", |(tenant, _)| tenant);
        let oldest = {
            let mut groups = self.groups.lock();
            let now = Now { monotonic: self.now(), wall_ms: self.wall.now_ms() };
            let oldest = groups.leave_oldest(tenant, now);
            if oldest.is_none() && groups.is_leaving(tenant) {
                return Err(ResponseError::CoordinatorLoadInProgress);
            }
            oldest.ok_or_else(|| (groups.len_of(tenant), groups.len()))
        };
        let oldest = oldest.map_err(|(of_tenant, all)| {
            let (limit, of_tenant_limit) = (self.config.groups_max, self.config.groups_per_tenant_max);
            tracing::warn!(
                group,
                "the group was refused (POLICY_VIOLATION): tenant '{tenant}' has {of_tenant} groups, all in use, of {all}; it may have kafka.groups_per_tenant_max = {of_tenant_limit}, and as many as it leaves free of kafka.groups_max = {limit}; delete groups or raise the limits"
            );
            ResponseError::PolicyViolation
        })?;
        let (this, new) = (self.clone(), group.to_owned());
        // Goes on to its end, also if the client that waits for it goes away.
        let gone = tokio::task::spawn_blocking(move || {
            this.forget_left(&oldest)?;
            tracing::info!(
                group = oldest,
                new,
                "a group without members gave way to a new one; its positions are forgotten"
            );
            this.groups.lock().give_place(&oldest, &new, this.new_entry(i64::MIN));
            Ok(())
        });
        gone.await.unwrap_or(Err(Error::Stopped)).map_err(|error| match error {
            Error::Stopped => ResponseError::CoordinatorNotAvailable,
            _ => ResponseError::CoordinatorLoadInProgress,
        })
    }

    /// Deletes a group without members, and its positions.
    ///
    /// # Errors
    /// Those of [`GroupRegistry::leave`], and of the log: the group stays.
    pub(crate) async fn delete(self: &Arc<Self>, group: &str) -> Result<(), ResponseError> {
        self.groups.lock().leave(group)?;
        let (this, group) = (self.clone(), group.to_owned());
        let deleted = tokio::task::spawn_blocking(move || {
            this.forget_left(&group)?;
            this.groups.lock().remove(&group);
            Ok(())
        });
        deleted.await.unwrap_or(Err(Error::Stopped)).map_err(|error| to_client(&error))
    }

    /// Forgets the positions of a group that is being left. Blocks on the disk.
    fn forget_left(&self, group: &str) -> Result<(), Error> {
        let forgotten = self.log.positions(group).and_then(|found| {
            let partitions: Vec<_> = found.into_iter().map(|found| found.partition).collect();
            if partitions.is_empty() { Ok(()) } else { self.log.forget_positions(group, &partitions) }
        });
        forgotten.inspect_err(|error| {
            tracing::warn!(group, %error, "the positions of a group could not be forgotten; it stays");
            self.groups.lock().stay(group, self.wall.now_ms());
        })
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
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&str, &Group) -> T) -> Vec<T> {
        let groups = self.groups.lock().in_use().map(|(name, entry)| (name.clone(), entry.clone())).collect::<Vec<_>>();
        groups.iter().map(|(name, entry)| look(name, &entry.lock().group)).collect()
    }

    pub(crate) fn has_positions(&self, group: &str) -> bool {
        self.log.positions(group).is_ok_and(|positions| !positions.is_empty())
    }

    /// Drops the positions of groups that have been empty, and have not committed, for the time of retention, and
    /// groups that are empty and have none.
    pub(crate) fn drop_expired(&self) -> Result<(), Error> {
        let retention = self.config.offsets_retention;
        let now = self.now();
        let oldest_ms = self.wall.now_ms().saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        for KnownGroup { name: group, committed_ms } in self.log.groups() {
            // The commit of a transaction may have brought a group back.
            self.groups.lock().note_stored(KnownGroup { name: group.clone(), committed_ms });
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
            self.groups.lock().remove_dead(&name);
        }
        let stored: HashSet<_> = self.log.groups().into_iter().map(|group| group.name).collect();
        self.groups.lock().keep_stored(|name| stored.contains(name));
        Ok(())
    }
}
