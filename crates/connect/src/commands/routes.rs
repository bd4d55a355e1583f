//! What waits in one tenant, and how it finds its way to who listens.
//!
//! Always true
//! - Of a device at most one command is in the hands of a listener; the next follows its verdict, in the order of the
//!   stream.
//! - A command that came back waits for a listener that is newer than its return, and holds up no other.
//! - A command ends once: then nothing but being forgotten happens to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millstream_types::TenantId;

use super::command::{Command, Place};
use super::delivery::{Note, Notes, Verdict};
use super::listener::Whose;
use super::listeners::{Devices, Listeners, Offer, Offered};
use super::outcome::Outcome;

const NOBODY: &str = "nobody listens for commands of the device";
const FULL: &str = "the device's connection has as many commands waiting as it may";
const NO_WORD: &str = "the device did not acknowledge the command, or its connection ended";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waits,
    InHand,
    Ended,
}

#[derive(Debug)]
struct Entry {
    command: Arc<Command>,
    phase: Phase,
    /// Only listeners newer than this one get it.
    newer_than: u64,
}

/// What waits for one device.
#[derive(Debug, Default)]
struct Queue {
    entries: BTreeMap<Place, Entry>,
    in_hand: Option<Place>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    queues: HashMap<Arc<str>, Queue>,
    pub(super) listeners: Listeners,
    /// Devices whose listener was full when something was to be handed over.
    full: HashSet<Arc<str>>,
}

/// What routing goes by.
pub(super) struct Ground<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) devices: &'a dyn Devices,
    pub(super) notes: &'a Arc<Notes>,
    pub(super) now_ms: i64,
}

impl Ground<'_> {
    fn end(&self, entry: &mut Entry, outcome: Outcome) {
        entry.phase = Phase::Ended;
        self.notes.add(Note::Ends(Arc::clone(&entry.command), outcome));
    }
}

impl Routes {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.listeners.is_empty()
    }

    /// A command that waits, durably.
    pub(super) fn arrive(&mut self, command: &Arc<Command>, ground: &Ground<'_>) {
        let device = Arc::clone(&command.device);
        let queue = self.queues.entry(Arc::clone(&device)).or_default();
        let entry = Entry { command: Arc::clone(command), phase: Phase::Waits, newer_than: 0 };
        queue.entries.insert(command.place, entry);
        self.hand_over(&device, ground);
        let entry = self.queues.get(&device).and_then(|queue| queue.entries.get(&command.place));
        if entry.is_some_and(|entry| entry.phase == Phase::Waits) && command.expires_ms.is_some() {
            ground.notes.add(Note::Waits(Arc::clone(command)));
        }
    }

    /// Hands over what waits for a new listener.
    pub(super) fn listened(&mut self, whose: &Whose, ground: &Ground<'_>) {
        match whose {
            Whose::Device { device, .. } => self.hand_over(device, ground),
            Whose::Behind { .. } => {
                let first = |queue: &Queue| queue.entries.values().next().map(|entry| entry.command.received_ms);
                let mut waiting: Vec<_> = self.queues.iter().map(|(device, queue)| (first(queue), device)).collect();
                waiting.sort_unstable();
                let devices: Vec<Arc<str>> = waiting.into_iter().map(|(_, device)| Arc::clone(device)).collect();
                devices.iter().for_each(|device| self.hand_over(device, ground));
            }
        }
    }

    /// What a listener says of the command in its hands. `newest` is the newest listener there is.
    pub(super) fn said(&mut self, command: &Command, verdict: Verdict, newest: u64, ground: &Ground<'_>) {
        let Some(queue) = self.queues.get_mut(&command.device) else { return };
        if queue.in_hand != Some(command.place) {
            return;
        }
        queue.in_hand = None;
        let Some(entry) = queue.entries.get_mut(&command.place) else { return };
        match verdict {
            Verdict::Accepted => ground.end(entry, Outcome::ACCEPTED),
            Verdict::Rejected { status, why } => ground.end(entry, Outcome::rejected(status, why)),
            Verdict::Released => match command.expires_ms {
                None => ground.end(entry, Outcome::released(NO_WORD)),
                Some(expires_ms) if expires_ms <= ground.now_ms => ground.end(entry, Outcome::EXPIRED),
                Some(_) => {
                    (entry.phase, entry.newer_than) = (Phase::Waits, newest);
                    ground.notes.add(Note::Waits(Arc::clone(&entry.command)));
                }
            },
        }
        self.hand_over(&command.device, ground);
    }

    /// The time of a command has come. One in the hands of a listener is left to its verdict.
    pub(super) fn expire(&mut self, command: &Command, ground: &Ground<'_>) {
        let queue = self.queues.get_mut(&command.device);
        if let Some(entry) = queue.and_then(|queue| queue.entries.get_mut(&command.place))
            && entry.phase == Phase::Waits
        {
            ground.end(entry, Outcome::EXPIRED);
        }
    }

    /// Tries those again who found somebody full.
    pub(super) fn retry(&mut self, ground: &Ground<'_>) {
        for device in std::mem::take(&mut self.full) {
            self.hand_over(&device, ground);
        }
    }

    /// The end of a command is durable.
    pub(super) fn forget(&mut self, command: &Command) {
        let Some(queue) = self.queues.get_mut(&command.device) else { return };
        queue.entries.remove(&command.place);
        if queue.entries.is_empty() {
            self.queues.remove(&command.device);
            self.full.remove(&command.device);
        }
    }

    /// Hands over the first that waits for `device`, if nothing of it is in anybody's hands.
    fn hand_over(&mut self, device: &Arc<str>, ground: &Ground<'_>) {
        let Some(queue) = self.queues.get_mut(device).filter(|queue| queue.in_hand.is_none()) else { return };
        let known = ground.devices.enabled(ground.tenant, device);
        // What the last offer came to, and from which listener on: one that asks for newer ones comes to the same.
        let mut last = None;
        for (place, entry) in queue.entries.iter_mut().filter(|(_, entry)| entry.phase == Phase::Waits) {
            let command = &entry.command;
            if command.expires_ms.is_some_and(|expires_ms| expires_ms <= ground.now_ms) {
                ground.end(entry, Outcome::EXPIRED);
                continue;
            }
            let Some(known) = &known else {
                ground.end(entry, Outcome::unknown_device());
                continue;
            };
            let newer_than = entry.newer_than;
            let offered = last.filter(|(than, _)| newer_than >= *than).map(|(_, offered)| offered);
            let offered = offered.unwrap_or_else(|| {
                let (devices, notes) = (ground.devices, ground.notes);
                self.listeners.offer(&Offer { command, device: known, newer_than, devices, notes })
            });
            last = Some((newer_than, offered));
            match (offered, command.expires_ms) {
                (Offered::Taken, _) => {
                    entry.phase = Phase::InHand;
                    queue.in_hand = Some(*place);
                    return;
                }
                (Offered::Nobody, None) => ground.end(entry, Outcome::released(NOBODY)),
                (Offered::Full, None) => ground.end(entry, Outcome::released(FULL)),
                (Offered::Nobody, Some(_)) => {}
                (Offered::Full, Some(_)) => drop(self.full.insert(Arc::clone(device))),
            }
        }
    }
}
