//! Routes the waiting commands of one tenant to its listeners.
//!
//! Invariants
//! - A listener holds at most one command of a device; the next command follows the verdict, in stream order.
//! - A returned command waits for a listener that is newer than its return, and does not block other commands.
//! - A command ends once; after that it is only removed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millstream_types::TenantId;

use super::command::{Command, RecordPosition};
use super::delivery::{Note, Notes, Verdict};
use super::listener::Whose;
use super::listeners::{Devices, Listeners, Offer, Offered};
use super::outcome::Outcome;
use super::request_id::RequestIds;

const NOBODY: &str = "nobody listens for commands of the device";
const FULL: &str = "the device's connection has as many commands waiting as it may";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waits,
    InHand,
    Ended,
}

#[derive(Debug)]
struct RoutedCommand {
    command: Arc<Command>,
    phase: Phase,
    /// Only newer listeners than this one get the command.
    newer_than: u64,
}

/// The commands that wait for one device.
#[derive(Debug, Default)]
struct CommandQueue {
    entries: BTreeMap<RecordPosition, RoutedCommand>,
    in_hand: Option<RecordPosition>,
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    queues: HashMap<Arc<str>, CommandQueue>,
    pub(super) listeners: Listeners,
    /// Devices whose listener was full at the last hand-over.
    full: HashSet<Arc<str>>,
}

/// The inputs of a routing decision.
pub(super) struct RoutingContext<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) devices: &'a dyn Devices,
    pub(super) notes: &'a Arc<Notes>,
    pub(super) request_ids: &'a RequestIds,
    pub(super) now_ms: i64,
}

impl RoutingContext<'_> {
    fn end(&self, entry: &mut RoutedCommand, outcome: Outcome) {
        entry.phase = Phase::Ended;
        self.notes.add(Note::Ends(Arc::clone(&entry.command), outcome));
    }
}

impl Routes {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.listeners.is_empty()
    }

    pub(super) fn arrive(&mut self, command: &Arc<Command>, context: &RoutingContext<'_>) {
        let device = Arc::clone(&command.device);
        let queue = self.queues.entry(Arc::clone(&device)).or_default();
        let entry = RoutedCommand { command: Arc::clone(command), phase: Phase::Waits, newer_than: 0 };
        queue.entries.insert(command.position, entry);
        self.hand_over(&device, context);
        let entry = self.queues.get(&device).and_then(|queue| queue.entries.get(&command.position));
        if entry.is_some_and(|entry| entry.phase == Phase::Waits) && command.expires_ms.is_some() {
            context.notes.add(Note::Waits(Arc::clone(command)));
        }
    }

    /// Hands waiting commands to a new listener.
    pub(super) fn listened(&mut self, whose: &Whose, context: &RoutingContext<'_>) {
        match whose {
            Whose::Device { device, .. } => self.hand_over(device, context),
            Whose::Behind { .. } => {
                let first = |queue: &CommandQueue| queue.entries.values().next().map(|entry| entry.command.received_ms);
                let mut waiting: Vec<_> = self.queues.iter().map(|(device, queue)| (first(queue), device)).collect();
                waiting.sort_unstable();
                let devices: Vec<Arc<str>> = waiting.into_iter().map(|(_, device)| Arc::clone(device)).collect();
                devices.iter().for_each(|device| self.hand_over(device, context));
            }
        }
    }

    /// Applies a listener's verdict on its command. `newest` is the newest listener.
    pub(super) fn said(&mut self, command: &Command, verdict: Verdict, newest: u64, context: &RoutingContext<'_>) {
        let Some(queue) = self.queues.get_mut(&command.device) else { return };
        if queue.in_hand != Some(command.position) {
            return;
        }
        queue.in_hand = None;
        let Some(entry) = queue.entries.get_mut(&command.position) else { return };
        match verdict {
            Verdict::Accepted => context.end(entry, Outcome::ACCEPTED),
            Verdict::Rejected { status, why } => context.end(entry, Outcome::rejected(status, why)),
            Verdict::Released { why } => match command.expires_ms {
                None => context.end(entry, Outcome::released(why)),
                Some(expires_ms) if expires_ms <= context.now_ms => context.end(entry, Outcome::EXPIRED),
                Some(_) => {
                    (entry.phase, entry.newer_than) = (Phase::Waits, newest);
                    context.notes.add(Note::Waits(Arc::clone(&entry.command)));
                }
            },
        }
        self.hand_over(&command.device, context);
    }

    /// Expires a command, unless a listener holds it; then the verdict decides.
    pub(super) fn expire(&mut self, command: &Command, context: &RoutingContext<'_>) {
        let queue = self.queues.get_mut(&command.device);
        if let Some(entry) = queue.and_then(|queue| queue.entries.get_mut(&command.position))
            && entry.phase == Phase::Waits
        {
            context.end(entry, Outcome::EXPIRED);
        }
    }

    /// Tries again the devices whose listener was full.
    pub(super) fn retry(&mut self, context: &RoutingContext<'_>) {
        for device in std::mem::take(&mut self.full) {
            self.hand_over(&device, context);
        }
    }

    /// Removes a command whose outcome is durable.
    pub(super) fn forget(&mut self, command: &Command) {
        let Some(queue) = self.queues.get_mut(&command.device) else { return };
        queue.entries.remove(&command.position);
        if queue.entries.is_empty() {
            self.queues.remove(&command.device);
            self.full.remove(&command.device);
        }
    }

    /// Hands over the first waiting command of `device`, if no listener holds one.
    fn hand_over(&mut self, device: &Arc<str>, context: &RoutingContext<'_>) {
        let Some(queue) = self.queues.get_mut(device).filter(|queue| queue.in_hand.is_none()) else { return };
        let known = context.devices.enabled(context.tenant, device);
        // What the last offer came to, and from which listener on: one that asks for newer ones comes to the same.
        let mut last = None;
        for (position, entry) in queue.entries.iter_mut().filter(|(_, entry)| entry.phase == Phase::Waits) {
            let command = &entry.command;
            if command.expires_ms.is_some_and(|expires_ms| expires_ms <= context.now_ms) {
                context.end(entry, Outcome::EXPIRED);
                continue;
            }
            let Some(known) = &known else {
                context.end(entry, Outcome::unknown_device());
                continue;
            };
            let newer_than = entry.newer_than;
            let offered = last.filter(|(than, _)| newer_than >= *than).map(|(_, offered)| offered);
            let offered = offered.unwrap_or_else(|| {
                let RoutingContext { devices, notes, request_ids, .. } = *context;
                self.listeners.offer(&Offer { command, device: known, newer_than, devices, notes, request_ids })
            });
            last = Some((newer_than, offered));
            match (offered, command.expires_ms) {
                (Offered::Taken, _) => {
                    entry.phase = Phase::InHand;
                    queue.in_hand = Some(*position);
                    return;
                }
                (Offered::Nobody, None) => context.end(entry, Outcome::released(NOBODY)),
                (Offered::Full, None) => context.end(entry, Outcome::released(FULL)),
                (Offered::Nobody, Some(_)) => {}
                (Offered::Full, Some(_)) => drop(self.full.insert(Arc::clone(device))),
            }
        }
    }
}
