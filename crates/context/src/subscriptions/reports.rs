//! Reports the outcomes of notifications to the owners of subscriptions. Outcomes that arrive while a report is stored
//! go into the next one.

use std::collections::HashMap;
use std::sync::{OnceLock, Weak};
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

/// Outcomes that are not reported yet.
#[derive(Default)]
pub(crate) struct Reports {
    new: Mutex<Vec<DeliveryReport>>,
    bell: Notify,
}

type Told = OnceLock<Weak<Views<SubscriptionView>>>;

impl Reports {
    pub(crate) fn add(&self, settled: DeliveryReport) {
        self.new.lock().push(settled);
        self.bell.notify_one();
    }

    /// Reports outcomes until the views are gone.
    pub(crate) async fn run(&self, views: &Told, counters: &NotificationCounters) {
        loop {
            self.bell.notified().await;
            let count = self.flush(views).await;
            counters.reports.inc_by(count as u64);
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Reports the gathered outcomes; returns their number.
    pub(crate) async fn flush(&self, views: &Told) -> usize {
        let new = std::mem::take(&mut *self.new.lock());
        let Some(views) = views.get().and_then(Weak::upgrade) else { return 0 };
        let count = new.len();
        let mut by_owner: HashMap<PartitionId, Vec<DeliveryReport>> = HashMap::new();
        for settled in new {
            by_owner.entry(views.partition_of(settled.tenant.as_str().as_bytes())).or_default().push(settled);
        }
        let mut answers = Vec::new();
        for (owner, mut all) in by_owner {
            while !all.is_empty() {
                let rest = all.split_off(all.len().min(COMMAND_MAX));
                answers.push(views.submit(owner, SubscriptionCommand::Settled(std::mem::replace(&mut all, rest))));
            }
        }
        for answer in answers {
            let stored = match answer {
                Ok(answer) => answer.await.unwrap_or(Err(millstream_view::Error::Stopped)),
                Err(error) => Err(error),
            };
            if let Err(error) = stored {
                tracing::warn!(%error, "what became of notifications is not stored; counters fall behind");
            }
        }
        count
    }
}
