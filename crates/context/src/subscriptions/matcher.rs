//! Reads the changes of all tenants and finds the subscriptions that fire.
//!
//! It works beside the update path and follows the change topics up to the durable offset. It sends fired subscriptions
//! with their notifications to the owner of the tenant's subscriptions, which decides.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_log::Topic;
use millstream_types::{Offset, PartitionId, RecordView, TenantId, TopicKind, WallClock, partition_of_key};
use millstream_view::{Answer, Error, Follow, SourcePartition, SourceRecord, Views};
use parking_lot::Mutex;

use super::change::{ChangePosition, ChangeRecord};
use super::expression_work::ExpressionWork;
use super::hub::Hub;
use super::render::{Occasion, root};
use super::stats::NotificationCounters;
use super::view::{Fired, SubscriptionCommand, SubscriptionView};
use crate::flow_control::{Flows, Looking};
use crate::model::entity::Key;
use crate::tokens::Tokens;

/// Notifications of one change in one command, and their approximate bytes; more are sent in several parts.
const PART_MAX: usize = 64;
const PART_MAX_BYTES: usize = 16 << 10;
/// Parts that may be on their way to owners.
const HANDED_MAX: usize = 64;
/// Pause while the owner's inbox is full.
const OVERLOADED_PAUSE: Duration = Duration::from_millis(1);
/// Entities whose last cause of change is kept.
const ROOTS_MAX: usize = 32_768;

pub(crate) struct Matcher {
    pub(crate) hub: Arc<Hub>,
    pub(crate) views: Arc<Views<SubscriptionView>>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) flows: Arc<Flows>,
    pub(crate) counters: Arc<NotificationCounters>,
    pub(crate) custom: bool,
    pub(crate) message_max_bytes: usize,
    pub(crate) roots: Mutex<Roots>,
    pub(crate) handed: Mutex<Handed>,
}

/// Pending replies to sent parts. They must be kept: an owner skips a command without a receiver.
pub(crate) type Handed = VecDeque<Answer<SubscriptionView>>;

impl Follow<SubscriptionView> for Matcher {
    type Item = Vec<Fired>;

    fn follows(&self, topic: &Topic) -> bool {
        topic.name.kind() == TopicKind::Context
    }

    fn items(&self, SourceRecord { topic, record, .. }: SourceRecord<'_>, found: &mut Vec<(PartitionId, Vec<Fired>)>) {
        found.extend(self.matched(topic, record));
    }

    fn command(&self, source: SourcePartition, next: Offset, items: Vec<(Offset, Vec<Fired>)>) -> SubscriptionCommand {
        SubscriptionCommand::Fired { from: Some((source, next)), items }
    }

    fn item_bytes(fired: &Vec<Fired>) -> usize {
        fired.iter().map(Fired::owned_bytes).sum()
    }
}

impl Matcher {
    /// The owner of the subscriptions that the change fires, and the notifications for it; `None` if it fires none.
    fn matched(&self, topic: &Topic, record: &RecordView<'_>) -> Option<(PartitionId, Vec<Fired>)> {
        let tenant = topic.name.tenant();
        if !self.hub.index.read().has(tenant) && self.flows.are_none() {
            return None;
        }
        let begun = Instant::now();
        let partition = partition_of_key(record.key?, topic.config.partitions).0;
        let place = ChangePosition { topic: topic.id.0, partition, offset: record.offset.0 };
        let change = ChangeRecord::read(tenant, place, record)?;
        // Marks the end of matching once the notifications have their tokens.
        let looking = self.flows.looking(change.details.flow);
        if self.comes_back(&change) {
            return None;
        }
        let owner = self.views.partition_of(tenant.as_str().as_bytes());
        let fired = self.fired(&change, looking.as_ref(), owner);
        self.counters.match_s.observe(begun.elapsed().as_secs_f64());
        (!fired.is_empty()).then_some((owner, fired))
    }

    /// One of our own notifications led to this change of the entity that it was about.
    fn comes_back(&self, change: &ChangeRecord<'_>) -> bool {
        let is_known = self.roots.lock().set(change.tenant, &change.key, &root(change));
        change.details.correlator.contains("cbnotif") && is_known
    }

    /// The fired subscriptions, except those in parts that were already sent because of their size.
    fn fired(&self, change: &ChangeRecord<'_>, looking: Option<&Looking>, owner: PartitionId) -> Vec<Fired> {
        let candidates = self.hub.index.read().candidates(change);
        self.counters.candidates.inc_by(candidates.len() as u64);
        let now_ms = self.wall.now_ms();
        let token = change.details.token.and_then(|number| self.tokens.get(number));
        let (custom, max_bytes) = (self.custom, self.message_max_bytes);
        let occasion =
            Occasion { change, now_ms, token: token.as_deref(), custom, max_bytes, work: ExpressionWork::default() };
        let (mut part, mut part_bytes, mut number) = (Vec::new(), 0, 0);
        for subscription in candidates {
            if !subscription.fires(change, now_ms) {
                continue;
            }
            if !occasion.holds(&subscription) {
                self.counters.over_budget.inc_by(u64::from(occasion.work.is_cut()));
                continue;
            }
            if occasion.has_nothing_for(&subscription) {
                continue;
            }
            number += 1;
            if subscription.is_quiet(now_ms) {
                self.counters.matched.inc();
                continue;
            }
            let Some(mut notification) = occasion.notification(&subscription, number) else { continue };
            self.counters.over_budget.inc_by(u64::from(occasion.work.is_cut()));
            notification.token = looking.map(Looking::token).unwrap_or_default();
            self.counters.matched.inc();
            if part.len() >= PART_MAX || part_bytes > PART_MAX_BYTES {
                self.hand_over(owner, std::mem::take(&mut part));
                part_bytes = 0;
            }
            part_bytes += notification.size_bytes();
            let (tenant, id) = (subscription.tenant.clone(), subscription.id.clone());
            part.push(Fired { tenant, id, notification: Arc::new(notification) });
        }
        part
    }

    /// Sends a part of a change's notifications to the owner, before the change counts as processed.
    fn hand_over(&self, owner: PartitionId, mut part: Vec<Fired>) {
        loop {
            let again: Vec<Fired> = part.iter().map(Fired::again).collect();
            match self.views.submit(owner, SubscriptionCommand::Fired { from: None, items: vec![(Offset::ZERO, part)] })
            {
                Err(full) if full.is_full() => {
                    std::thread::sleep(OVERLOADED_PAUSE);
                    part = again;
                }
                Ok(answer) => return self.land(answer),
                // At shutdown the part is left: the change is processed again at the next start.
                Err(_) => return,
            }
        }
    }

    /// Keeps the reply, and waits for the oldest replies while more than `HANDED_MAX` are kept.
    fn land(&self, answer: Answer<SubscriptionView>) {
        let mut handed = self.handed.lock();
        handed.push_back(answer);
        while handed.len() > HANDED_MAX
            && let Some(oldest) = handed.pop_front()
        {
            if let Err(error) = oldest.blocking_recv().unwrap_or(Err(Error::Stopped)) {
                tracing::warn!(%error, "a part of what a change has led to is not delivered");
            }
        }
    }
}

impl Fired {
    pub(crate) fn owned_bytes(&self) -> usize {
        self.notification.size_bytes() + size_of::<Self>()
    }

    fn again(&self) -> Self {
        Self { tenant: self.tenant.clone(), id: self.id.clone(), notification: self.notification.clone() }
    }
}

/// The root cause of the last change of recently changed entities. Both are kept as keyed hashes: texts would take ten
/// times as much memory and one allocation for each change.
#[derive(Default)]
pub(crate) struct Roots {
    young: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Roots {
    /// Stores the root cause of a change; returns true if it equals that of the change before.
    fn set(&mut self, tenant: &TenantId, key: &Key, root: &str) -> bool {
        if self.young.len() >= ROOTS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let (entity, root) = (self.hasher.hash_one((tenant, key)), self.hasher.hash_one(root));
        let before = self.young.insert(entity, root).or_else(|| self.old.remove(&entity));
        before == Some(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_known_until_many_other_entities_have_changed() {
        let mut roots = Roots::default();
        let tenant = TenantId::default();
        let key = |n: usize| Key { id: n.to_string().as_str().into(), kind: "T".into(), path: "/".into() };
        assert!(!roots.set(&tenant, &key(0), "a"));
        assert!(roots.set(&tenant, &key(0), "a") && !roots.set(&tenant, &key(0), "b"));
        assert!(!roots.set(&TenantId::new("other").unwrap(), &key(0), "b"), "of each tenant");
        for n in 1..ROOTS_MAX {
            assert!(!roots.set(&tenant, &key(n), "b"));
        }
        assert!(roots.set(&tenant, &key(0), "b"));
        for n in 1..=2 * ROOTS_MAX {
            roots.set(&tenant, &key(n), "c");
        }
        assert!(!roots.set(&tenant, &key(0), "b"), "forgotten");
        assert!(roots.young.len() + roots.old.len() <= 2 * ROOTS_MAX, "bounded");
    }
}
