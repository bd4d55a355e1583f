//! Reads a tenant's stream as it grows and gives each message to those who want it.
//!
//! A message at most once goes out as soon as it is in memory. The others wait until the log promises to keep them:
//! nobody gets, let alone acknowledges, a message that a crash could still take back.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millstream_log::{Bell, Error};
use millstream_mqtt::Qos;
use millstream_types::{Offset, RecordBatch};

use super::message::MessageView;
use super::state::SharedCopy;
use super::{Broker, read};
use tokio::time::MissedTickBehavior;

/// Interval of the timed work; the stored progress lags behind by at most this time.
const TICK: Duration = Duration::from_secs(1);

/// Dispatches messages until the broker or its topic is gone.
pub(super) async fn dispatch(broker: Weak<Broker>, bell: Arc<Bell>, mut next: Offset) {
    let mut unsettled = VecDeque::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        {
            let Some(broker) = broker.upgrade() else { return };
            if let Err(error) = catch_up(&broker, &mut next, &mut unsettled).await {
                tracing::warn!(%error, topic = %broker.partition.id(), "the private space of a tenant ends");
                broker.give_up();
                return;
            }
        }
        tokio::select! {
            () = bell.rung() => {}
            _ = ticks.tick() => {
                let Some(broker) = broker.upgrade() else { return };
                broker.tick();
            }
        }
    }
}

/// Dispatches all messages that the log has.
async fn catch_up(broker: &Broker, next: &mut Offset, unsettled: &mut VecDeque<RecordBatch>) -> Result<(), Error> {
    loop {
        let batches = match read(&broker.partition, *next).await {
            Err(Error::Trimmed { .. }) => {
                *next = broker.partition.offsets().first;
                continue;
            }
            read => read?,
        };
        let Some(last) = batches.last() else { break };
        *next = last.next_offset();
        for batch in &batches {
            broker.give(batch, |message| message.qos == Qos::AtMostOnce);
        }
        unsettled.extend(batches);
        broker.settle(unsettled);
    }
    broker.settle(unsettled);
    Ok(())
}

/// Reads the stream again that kept sessions have not come through yet, to where it ends now.
pub(super) async fn recover(broker: &Broker, from: Offset) -> Result<Offset, Error> {
    let (mut next, mut unsettled) = (from, VecDeque::new());
    while next < broker.began {
        let batches = match read(&broker.partition, next).await {
            Err(Error::Trimmed { .. }) => {
                next = broker.partition.offsets().first;
                continue;
            }
            read => read?,
        };
        let Some(last) = batches.last() else { break };
        next = last.next_offset();
        unsettled.extend(batches);
        broker.settle(&mut unsettled);
    }
    // Batches that are not settled yet are read again.
    Ok(unsettled.front().map_or(next, RecordBatch::base_offset))
}

impl Broker {
    /// Gives what the log promises to keep.
    fn settle(&self, unsettled: &mut VecDeque<RecordBatch>) {
        let stable = self.partition.offsets().stable;
        while let Some(batch) = unsettled.pop_front_if(|batch| batch.next_offset() <= stable) {
            self.give(&batch, |message| message.qos > Qos::AtMostOnce);
            self.state.lock().next = batch.next_offset().0;
        }
    }

    fn give(&self, batch: &RecordBatch, is_due: impl Fn(&MessageView<'_>) -> bool) {
        let limits = self.limits();
        let mut lost = 0;
        let mut state = self.state.lock();
        for record in batch.records().map_while(Result::ok) {
            let Some(message) = MessageView::read(&record).filter(|message| is_due(message)) else { continue };
            lost += state.deliver(
                record.offset.0,
                &message,
                &mut SharedCopy::new(&self.room, record.offset < self.began),
                &limits,
            );
        }
        drop(state);
        self.counts.dropped.inc_by(lost);
    }

    /// Sends everybody away: the topic is gone.
    fn give_up(&self) {
        let mut state = self.state.lock();
        let sessions = std::mem::take(&mut *state).sessions;
        state.is_gone = true;
        drop(state);
        sessions.into_values().for_each(|mut session| session.detach());
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().is_gone
    }
}
