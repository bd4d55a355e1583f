//! Reports the outcomes of notifications to the owners of subscriptions. Outcomes that arrive while a report is stored
//! go into the next one, and so do those of a report that finds no room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use millstream_types::PartitionId;
use millstream_view::Views;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::stats::NotificationCounters;
use super::view::{DeliveryReport, SubscriptionCommand, SubscriptionView};

/// Reports in one command, so that their changes fit into one append.
const COMMAND_MAX: usize = 1_000;
/// Pause after a report, to gather outcomes.
const GATHER: Duration = Duration::from_millis(5);
/// Pause after a report that was refused, because a disk or a queue is full.
const PATIENCE: Duration = Duration::from_secs(1);
/// Outcomes that wait until they can be stored, at most; the oldest are given up.
const WAITING_MAX: usize = 10_000;

/// Outcomes that are not reported yet.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<VecDeque<DeliveryReport>>,
    bell: Notify,
}

type Told = OnceLock<Weak<Views<SubscriptionView>>>;

impl Reports {
    pub(crate) fn add(&self, settled: DeliveryReport) {
        self.waiting.lock().push_back(settled);
        self.bell.notify_one();
    }

    /// Reports outcomes until the views are gone.
    pub(crate) async fn run(&self, views: &Told, counters: &NotificationCounters) {
        loop {
            self.bell.notified().await;
            let given = self.flush(views).await;
            counters.reports.inc_by(given.stored as u64);
            if given.refused > 0 {
                self.bell.notify_one();
                tokio::time::sleep(PATIENCE).await;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Reports the gathered outcomes. Those that are refused for lack of room wait for the next call.
    pub(crate) async fn flush(&self, views: &Told) -> Flushed {
        let new = std::mem::take(&mut *self.waiting.lock());
        let Some(views) = views.get().and_then(Weak::upgrade) else { return Flushed::default() };
        let mut by_owner: HashMap<PartitionId, Vec<DeliveryReport>> = HashMap::new();
        for settled in new {
            by_owner.entry(views.partition_of(settled.tenant.as_str().as_bytes())).or_default().push(settled);
        }
        let mut answers = Vec::new();
        for (owner, mut all) in by_owner {
            while !all.is_empty() {
                let rest = all.split_off(all.len().min(COMMAND_MAX));
                let reports: Arc<[DeliveryReport]> = std::mem::replace(&mut all, rest).into();
                answers.push((views.submit(owner, SubscriptionCommand::Settled(reports.clone())), reports));
            }
        }
        let (mut flushed, mut refused) = (Flushed::default(), Vec::new());
        for (answer, reports) in answers {
            let stored = match answer {
                Ok(answer) => answer.await.unwrap_or(Err(millstream_view::Error::Stopped)),
                Err(error) => Err(error),
            };
            match stored {
                Ok(_) => flushed.stored += reports.len(),
                Err(error) if error.is_full() => {
                    refused.extend_from_slice(&reports);
                }
                Err(error) => {
                    tracing::warn!(%error, "what became of notifications is not stored; counters fall behind");
                }
            }
        }
        flushed.refused = refused.len();
        self.wait(refused);
        flushed
    }

    /// Keeps refused reports for the next time, in front of what has come meanwhile.
    fn wait(&self, mut refused: Vec<DeliveryReport>) {
        let mut waiting = self.waiting.lock();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        let given_up = refused.len().saturating_sub(room);
        if given_up > 0 {
            tracing::warn!(given_up, "what became of notifications cannot be stored for long; counters fall behind");
        }
        refused.drain(..given_up);
        refused.into_iter().rev().for_each(|report| waiting.push_front(report));
    }
}

/// The fate of reports.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Flushed {
    pub(crate) stored: usize,
    /// Those that wait for the next time.
    pub(crate) refused: usize,
}
