//! The instances of a run, as those see them that send to them.

use std::collections::{BTreeMap, BTreeSet};

use super::event_time::TimeMark;
use super::inbox::Inbox;
use crate::batch::Batch;
use crate::connector::Waker;
use crate::document::NodeId;
use crate::plan::Plan;

/// A copy of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InstanceId {
    /// The index in [`Plan::chains`].
    pub(super) chain: usize,
    pub(super) number: u32,
}

/// The inboxes of all instances.
pub(super) struct Neighbours {
    /// By chain and number.
    inboxes: Vec<Vec<Inbox>>,
    /// The lane of the first instance of a sending chain in the inboxes of a receiving one, by both.
    first_lanes: BTreeMap<(usize, usize), usize>,
}

impl Neighbours {
    /// The inboxes of instances with these wakers, by chain and number.
    pub(super) fn new(plan: &Plan, wakers: &[Vec<Waker>]) -> Self {
        let mut edges = BTreeSet::new();
        for planned in &plan.nodes {
            let (mut targets, mut seen) = (planned.router.targets(), BTreeSet::new());
            while let Some(target) = targets.pop() {
                let target = &plan.nodes[target.0];
                if target.chain != planned.chain {
                    edges.insert((planned.chain, target.chain));
                }
                // A record without a key fails before it is sent, and takes the error routes of the target from here.
                let failed = target.router.error_targets().filter(|_| target.key.is_some());
                targets.extend(failed.filter(|node| seen.insert(*node)));
            }
        }
        let mut first_lanes = BTreeMap::new();
        let mut inboxes = Vec::new();
        for (to, readers) in wakers.iter().enumerate() {
            let mut senders: Vec<&Waker> = Vec::new();
            for (from, _) in edges.iter().filter(|(_, receiver)| *receiver == to) {
                first_lanes.insert((*from, to), senders.len());
                senders.extend(&wakers[*from]);
            }
            let inbox = |reader: &Waker| Inbox::new(Waker::clone(reader), senders.iter().copied().cloned());
            inboxes.push(readers.iter().map(inbox).collect());
        }
        Self { inboxes, first_lanes }
    }

    pub(super) fn inbox(&self, of: InstanceId) -> &Inbox {
        &self.inboxes[of.chain][of.number as usize]
    }

    /// `true` for an instance that nobody sends to.
    pub(super) fn is_root(&self, id: InstanceId) -> bool {
        self.inbox(id).is_without_senders()
    }

    /// The inboxes of a chain's instances.
    pub(super) fn inboxes(&self, chain: usize) -> &[Inbox] {
        &self.inboxes[chain]
    }

    /// Sends a batch to a node, or returns it if there is no room; the sender is woken once there is.
    pub(super) fn send(&self, from: InstanceId, to: InstanceId, node: NodeId, batch: Batch) -> Result<(), Batch> {
        let lane = self.first_lanes[&(from.chain, to.chain)] + from.number as usize;
        self.inbox(to).offer(lane, node, batch)
    }

    /// Puts the barrier of an epoch behind all that `from` has sent.
    pub(super) fn send_barrier(&self, from: InstanceId, epoch: u64) {
        self.each_lane_of(from, |inbox, lane| inbox.put_barrier(lane, epoch));
    }

    /// Puts the event time behind all that `from` has sent.
    pub(super) fn send_time(&self, from: InstanceId, time: TimeMark) {
        self.each_lane_of(from, |inbox, lane| inbox.put_time(lane, time));
    }

    /// Puts the end behind all that `from` has sent, which has no more `for_good`, or was stopped.
    pub(super) fn send_end(&self, from: InstanceId, for_good: bool) {
        self.each_lane_of(from, |inbox, lane| inbox.put_end(lane, for_good));
    }

    fn each_lane_of(&self, from: InstanceId, tell: impl Fn(&Inbox, usize)) {
        for ((_, to), first) in self.first_lanes.range((from.chain, 0)..(from.chain + 1, 0)) {
            self.inboxes[*to].iter().for_each(|inbox| tell(inbox, first + from.number as usize));
        }
    }
}
