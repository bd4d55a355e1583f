//! One thread that applies the listeners' verdicts, expires commands and hands each outcome to the partition owner.
//!
//! Invariant: the thread submits an outcome again until it is durable or the owner has stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_types::ErrorCode;
use millstream_view::Views;

use super::command::Command;
use super::delivery::Note;
use super::hub::Hub;
use super::intake::owner;
use super::outcome::Outcome;
use super::view::{Ask, CommandView};
use crate::streams::Streams;

const PATIENCE: Duration = Duration::from_secs(1);
/// Delay before a refused outcome is submitted again.
const RETRY: Duration = Duration::from_millis(50);

pub(crate) struct Settlement {
    pub(crate) hub: Arc<Hub>,
    pub(crate) views: Arc<Views<CommandView>>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) stopped: Arc<AtomicBool>,
    /// Outcomes that are to be submitted to the owners.
    pub(crate) ends: Vec<(Arc<Command>, Outcome)>,
}

/// An outcome that its owner has not confirmed yet.
struct PendingOutcome {
    command: Arc<Command>,
    outcome: Outcome,
    answer: millstream_view::Answer<CommandView>,
}

impl Settlement {
    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        let (mut flights, mut retried_ms) = (Vec::new(), 0);
        while !self.stopped.load(Ordering::Acquire) {
            self.hub.notes.bell.wait(self.patience());
            let now_ms = self.hub.wall.now_ms();
            self.hub.router.expire(now_ms);
            if (now_ms - retried_ms).unsigned_abs() >= PATIENCE.as_millis() as u64 {
                retried_ms = now_ms;
                self.hub.router.retry(now_ms);
            }
            self.read_notes();
            self.hand_over(&mut flights);
            flights = flights.into_iter().filter_map(|flight| self.landed(flight)).collect();
        }
        self.read_notes();
        self.hand_over(&mut flights);
        for PendingOutcome { answer, .. } in flights {
            // Durable outcomes are already applied; the next start resumes commands whose append fails now.
            let _ = answer.blocking_recv();
        }
    }

    fn patience(&self) -> Duration {
        if !self.ends.is_empty() {
            return RETRY;
        }
        let left_ms = self.hub.router.next_expiry_ms().map(|at_ms| at_ms - self.hub.wall.now_ms());
        left_ms.map_or(PATIENCE, |left_ms| Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)).min(PATIENCE))
    }

    fn read_notes(&mut self) {
        loop {
            let notes = self.hub.notes.take();
            if notes.is_empty() {
                return;
            }
            for note in notes {
                match note {
                    Note::Said(command, verdict) => self.hub.router.said(&command, verdict, self.hub.wall.now_ms()),
                    Note::Ends(command, outcome) => self.ends.push((command, outcome)),
                    Note::Waits(command) => self.hub.waiters.waits(&command),
                }
            }
        }
    }

    fn hand_over(&mut self, flights: &mut Vec<PendingOutcome>) {
        for (command, outcome) in std::mem::take(&mut self.ends) {
            let handed = self.streams.response_partition(&command.tenant, &command.device).map(|tell| {
                let ask = Ask::End { command: Arc::clone(&command), outcome: outcome.clone(), tell };
                self.views.submit(owner(&self.views, &command.tenant, &command.device), ask)
            });
            match handed {
                Ok(Ok(answer)) => flights.push(PendingOutcome { command, outcome, answer }),
                Ok(Err(error)) => self.again(command, outcome, &error),
                Err(error) => self.again(command, outcome, &error.into()),
            }
        }
    }

    /// Returns the flight if its append is still open.
    fn landed(&mut self, mut flight: PendingOutcome) -> Option<PendingOutcome> {
        match flight.answer.try_recv() {
            Err(tokio::sync::oneshot::error::TryRecvError::Empty) => Some(flight),
            Ok(Err(error)) => {
                self.again(flight.command, flight.outcome, &error);
                None
            }
            Ok(Ok(_)) | Err(tokio::sync::oneshot::error::TryRecvError::Closed) => None,
        }
    }

    fn again(&mut self, command: Arc<Command>, outcome: Outcome, error: &millstream_view::Error) {
        let (tenant, device, position) = (&command.tenant, &command.device, command.position);
        if error.is_retryable() || error.code() == ErrorCode::NotFound {
            tracing::debug!(%tenant, %device, ?position, %error, "the end of a command is not stored yet");
            self.ends.push((command, outcome));
        } else {
            tracing::error!(%tenant, %device, ?position, %error, "the end of a command cannot be stored before a restart");
        }
    }
}
