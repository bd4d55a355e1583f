//! All groups of this node, the calls that wait in them, and their timer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use millstream_log::{Error, Log};
use millstream_types::{MonotonicClock, Role, Roles, TenantId, WallClock};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::GroupConfig;
use super::machine::{Answer, Group, GroupState, Joined, Refused, Synced};
use super::member::Ticket;

/// Longest group id that a client may name, in bytes.
const GROUP_ID_MAX_BYTES: usize = 255;
/// Stands between tenant and id in the log; no tenant's name has it.
const TENANT_END: char = '/';

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The tenant whose groups and topics the caller sees.
    pub tenant: TenantId,
    /// What the caller may do.
    pub roles: Roles,
    /// What the client calls itself.
    pub client_id: String,
    /// The address from which it calls.
    pub client_host: String,
}

impl Caller {
    /// The name under which a group of this caller's tenant is kept.
    ///
    /// # Errors
    /// [`ResponseError::InvalidGroupId`] if the id is empty or too long; [`ResponseError::GroupAuthorizationFailed`] if
    /// the caller is no reader.
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
        Ok(format!("{}{TENANT_END}{id}", self.tenant))
    }

    /// The id of one of this tenant's groups, as clients know it.
    pub(crate) fn id_of<'g>(&self, group: &'g str) -> Option<&'g str> {
        tenant_and_id(group).filter(|(tenant, _)| *tenant == self.tenant.as_str()).map(|(_, id)| id)
    }
}

/// The tenant of a group in the log, and the id that its clients know; `None` if it is none of this listener's.
pub fn tenant_and_id(group: &str) -> Option<(&str, &str)> {
    group.split_once(TENANT_END)
}

enum Waiting {
    Join(oneshot::Sender<Result<Joined, Refused>>),
    Sync(oneshot::Sender<Result<Synced, ResponseError>>),
}

/// A group and the calls that wait in it.
pub(crate) struct Room {
    pub(crate) group: Group,
    waiting: HashMap<Ticket, Waiting>,
}

/// The groups of this node. One for each listener; its handlers may be called from any task.
pub struct Coordinator {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) config: GroupConfig,
    monotonic: Arc<dyn MonotonicClock>,
    wall: Arc<dyn WallClock>,
    rooms: Mutex<BTreeMap<String, Arc<Mutex<Room>>>>,
    next_ticket: AtomicU64,
    /// When the timer wakes, in nanoseconds of the monotonic clock.
    wakes_at: AtomicU64,
    earlier: Notify,
    started: Duration,
    stopped: AtomicBool,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("groups", &self.rooms.lock().len()).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// A coordinator without groups, for the positions in `log`. Sessions expire while [`Coordinator::run`] runs.
    pub fn new(
        log: Arc<dyn Log>,
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
            rooms: Mutex::new(BTreeMap::new()),
            next_ticket: AtomicU64::new(0),
            wakes_at: AtomicU64::new(0),
            earlier: Notify::new(),
            started,
            stopped: AtomicBool::new(false),
        })
    }

    /// Ends what is due: rebalances, sessions, positions of groups that are long empty. Runs until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut look_through_at = self.now() + self.config.offsets_check_interval;
        loop {
            // Not yet known: whoever has something earlier from here on wakes the timer.
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

    /// Answers everybody who waits, and who would wait from now on, that this coordinator is not available.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let rooms: Vec<_> = self.rooms.lock().values().cloned().collect();
        rooms.iter().for_each(|room| room.lock().waiting.clear());
    }

    /// Nobody may wait any more. Asked after a call has been put among those that wait: [`Coordinator::stop`] has either
    /// ended it or is seen here.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Does in every group what is due; returns when there is something next.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let now = self.now();
        let rooms: Vec<_> = self.rooms.lock().values().cloned().collect();
        let due = rooms.iter().filter_map(|room| {
            let mut room = room.lock();
            let mut out = Vec::new();
            room.group.tick(now, &mut out);
            room.answer(out);
            room.group.next_due()
        });
        due.min()
    }

    pub(crate) fn now(&self) -> Duration {
        self.monotonic.now()
    }

    pub(crate) fn next_ticket(&self) -> Ticket {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Does something in a group that exists, and answers whom it concerns.
    pub(crate) fn within<T>(&self, group: &str, act: impl FnOnce(&mut Room, &mut Vec<Answer>) -> T) -> Option<T> {
        let room = self.rooms.lock().get(group)?.clone();
        let mut room = room.lock();
        (room.group.state() != GroupState::Dead).then(|| self.act(&mut room, act))
    }

    /// As [`Coordinator::within`], in a group that begins to exist by it.
    ///
    /// # Errors
    /// [`ResponseError::GroupMaxSizeReached`] if no further group may begin.
    pub(crate) fn within_new<T>(
        &self,
        group: &str,
        act: impl FnOnce(&mut Room, &mut Vec<Answer>) -> T,
    ) -> Result<T, ResponseError> {
        let mut rooms = self.rooms.lock();
        let is_dead = rooms.get(group).is_some_and(|room| room.lock().group.state() == GroupState::Dead);
        if is_dead {
            rooms.remove(group);
        }
        if !rooms.contains_key(group) && rooms.len() >= self.config.groups_max {
            rooms.retain(|name, room| room.lock().group.empty_since().is_none() || self.has_positions(name));
        }
        if !rooms.contains_key(group) && rooms.len() >= self.config.groups_max {
            let (groups, limit) = (rooms.len(), self.config.groups_max);
            tracing::warn!(group, groups, limit, "no further group may begin: delete groups or raise groups_max");
            return Err(ResponseError::GroupMaxSizeReached);
        }
        let new = || {
            let group = Group::new(self.config.clone(), self.now());
            Arc::new(Mutex::new(Room { group, waiting: HashMap::new() }))
        };
        let room = rooms.entry(group.to_owned()).or_insert_with(new).clone();
        // Taken before the list is let go: nobody can end the group in between.
        let mut room = room.lock();
        drop(rooms);
        Ok(self.act(&mut room, act))
    }

    fn act<T>(&self, room: &mut Room, act: impl FnOnce(&mut Room, &mut Vec<Answer>) -> T) -> T {
        let mut out = Vec::new();
        let result = act(room, &mut out);
        room.answer(out);
        let due = room.group.next_due().map_or(u64::MAX, |due| due.as_nanos() as u64);
        if due < self.wakes_at.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
        result
    }

    /// The groups in memory, by name, with what `look` sees in each.
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&str, &Group) -> T) -> Vec<T> {
        let rooms: Vec<_> = self.rooms.lock().iter().map(|(name, room)| (name.clone(), room.clone())).collect();
        rooms.iter().map(|(name, room)| look(name, &room.lock().group)).collect()
    }

    /// Removes a group that [`Group::end`] has ended.
    pub(crate) fn remove_dead(&self, group: &str) {
        let mut rooms = self.rooms.lock();
        if rooms.get(group).is_some_and(|room| room.lock().group.state() == GroupState::Dead) {
            rooms.remove(group);
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
        for group in self.log.groups()? {
            // A group that nobody has used since the start counts as empty from then on.
            let empty_since = match self.within(&group, |room, _| room.group.empty_since()) {
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
            // Somebody may have come meanwhile: then it is no longer empty, and stays.
            self.within(&name, |room, _| room.group.end().ok());
            self.remove_dead(&name);
        }
        Ok(())
    }
}

impl Room {
    /// A join will be answered under `ticket`.
    pub(crate) fn await_join(&mut self, ticket: Ticket) -> oneshot::Receiver<Result<Joined, Refused>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(ticket, Waiting::Join(sender));
        receiver
    }

    /// A sync will be answered under `ticket`.
    pub(crate) fn await_sync(&mut self, ticket: Ticket) -> oneshot::Receiver<Result<Synced, ResponseError>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(ticket, Waiting::Sync(sender));
        receiver
    }

    /// Whoever no longer listens will be missed by its heartbeats.
    fn answer(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            match answer {
                Answer::Join(ticket, result) => {
                    if let Some(Waiting::Join(sender)) = self.waiting.remove(&ticket) {
                        sender.send(result).ok();
                    }
                }
                Answer::Sync(ticket, result) => {
                    if let Some(Waiting::Sync(sender)) = self.waiting.remove(&ticket) {
                        sender.send(result).ok();
                    }
                }
            }
        }
    }
}
