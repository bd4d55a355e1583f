//! One run of a simulation: its settings, its end and its progress. All generator threads share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::{Pacing, SimArgs};
use crate::Error;
use crate::target::ServerTarget;

/// Pause before a failed connection is opened again. It keeps the workers from retrying in a tight loop.
pub(super) const CONNECT_REST: Duration = Duration::from_millis(100);

/// State that all threads of a run share.
#[derive(Debug)]
pub(crate) struct SimRun {
    pub(super) target: ServerTarget,
    pub(super) pacing: Pacing,
    pub(super) period: Duration,
    pub(super) connections: usize,
    pub(super) threads: usize,
    /// Number of messages that may still be sent.
    tickets: AtomicU64,
    count: Option<u64>,
    pub(crate) start: Instant,
    pub(crate) measured_from: Instant,
    /// `None` if only the message count ends the run.
    pub(super) end: Option<Instant>,
    pub(super) stop: CancellationToken,
    /// Time at which a worker first saw the end of the run.
    over: OnceLock<Instant>,
}

/// Progress of a running simulation. Messages of the warm-up do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimProgress {
    /// Time since the start, warm-up included.
    pub elapsed: Duration,
    /// Messages that were answered or failed.
    pub sent: u64,
    /// Messages answered with a 2xx status, or confirmed over MQTT.
    pub accepted: u64,
    /// Messages that are due and not sent yet; 0 in the closed loop.
    pub backlog: u64,
}

/// Outcome of waiting for the due time of a message.
pub(super) enum DueWait {
    /// The connection was free before the message was due.
    Waited,
    /// The message was due before a connection was free.
    Late,
    Over,
}

impl SimRun {
    pub(crate) fn new(args: &SimArgs, stop: CancellationToken) -> Result<Self, Error> {
        args.check()?;
        let start = Instant::now();
        let measured_from = start + args.warm_up;
        Ok(Self {
            target: args.target()?,
            pacing: args.pacing,
            period: args.period,
            connections: args.connections(),
            threads: args.threads(),
            tickets: AtomicU64::new(args.count.unwrap_or(u64::MAX)),
            count: args.count,
            start,
            measured_from,
            end: measured_from.checked_add(args.duration()),
            stop,
            over: OnceLock::new(),
        })
    }

    pub(crate) fn progress(&self, fleets: &[Arc<Mutex<Fleet>>]) -> SimProgress {
        let now = self.over.get().copied().unwrap_or_else(Instant::now);
        let until = self.end.map_or(now, |end| end.min(now));
        let elapsed = until.saturating_duration_since(self.start);
        let mut progress = SimProgress { elapsed, sent: 0, accepted: 0, backlog: 0 };
        let (mut due, mut started) = (0, 0);
        for fleet in fleets {
            let fleet = fleet.lock();
            progress.sent += fleet.tally.sent();
            progress.accepted += fleet.tally.accepted;
            started += fleet.started;
            due += fleet.messages_due(self.period, elapsed);
        }
        if self.pacing == Pacing::Open {
            progress.backlog = self.count.map_or(due, |count| due.min(count)).saturating_sub(started);
        }
        progress
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over_at(Instant::now())
    }

    pub(super) fn is_over_at(&self, now: Instant) -> bool {
        let over = self.end.is_some_and(|end| now >= end) || self.stop.is_cancelled();
        if over {
            self.over.get_or_init(|| now);
        }
        over
    }

    /// Pauses after a connection could not be opened.
    pub(super) async fn rest(&self) {
        tokio::select! { () = self.stop.cancelled() => {}, () = sleep(CONNECT_REST) => {} }
    }

    pub(super) async fn wait_until(&self, due: Instant) -> DueWait {
        let waited = due > Instant::now();
        if waited {
            let wake = self.end.map_or(due, |end| due.min(end));
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep_until(wake) => {}
            }
        }
        match (self.is_over(), waited) {
            (true, _) => DueWait::Over,
            (false, true) => DueWait::Waited,
            (false, false) => DueWait::Late,
        }
    }

    /// Takes one message from the count and returns false if none is left. The last message ends the run.
    pub(super) fn take_ticket(&self) -> bool {
        if self.count.is_none() {
            return true;
        }
        let taken = self.tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() || taken == Ok(1) {
            self.stop.cancel();
        }
        taken.is_ok()
    }
}
