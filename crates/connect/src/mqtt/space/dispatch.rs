//! Reads a tenant's stream as it grows and gives each message to those who want it.
//!
//! What is promised at most once goes out as soon as it is in memory. The rest waits until the log promises to keep it:
//! nobody gets, let alone acknowledges, what a crash could still take back.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millstream_log::{Bell, Error};
use millstream_types::{Offset, RecordBatch};

use super::message::Lying;
use super::{Kept, Space, read};
use crate::mqtt::packet::Qos;
use tokio::time::MissedTickBehavior;

/// How often it is looked at what time brings, and how long at most what is kept lags behind.
const TICK: Duration = Duration::from_secs(1);

/// Works until the space or its topic is gone.
pub(super) async fn dispatch(space: Weak<Space>, bell: Arc<Bell>, mut next: Offset) {
    let mut unsettled = VecDeque::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        {
            let Some(space) = space.upgrade() else { return };
            if let Err(error) = catch_up(&space, &mut next, &mut unsettled).await {
                tracing::warn!(%error, topic = %space.partition.id(), "the private space of a tenant ends");
                space.give_up();
                return;
            }
        }
        tokio::select! {
            () = bell.rung() => {}
            _ = ticks.tick() => {
                let Some(space) = space.upgrade() else { return };
                space.tick();
            }
        }
    }
}

/// Deals with all that is there.
async fn catch_up(space: &Space, next: &mut Offset, unsettled: &mut VecDeque<RecordBatch>) -> Result<(), Error> {
    loop {
        let batches = match read(&space.partition, *next).await {
            Err(Error::Trimmed { .. }) => {
                *next = space.partition.offsets().first;
                continue;
            }
            read => read?,
        };
        let Some(last) = batches.last() else { break };
        *next = last.next_offset();
        for batch in &batches {
            space.give(batch, |message| message.qos == Qos::AtMostOnce);
        }
        unsettled.extend(batches);
        space.settle(unsettled);
    }
    space.settle(unsettled);
    Ok(())
}

/// Reads the stream again that kept sessions have not come through yet, to where it ends now.
pub(super) async fn recover(space: &Space, from: Offset) -> Result<Offset, Error> {
    let (mut next, mut unsettled) = (from, VecDeque::new());
    while next < space.began {
        let batches = match read(&space.partition, next).await {
            Err(Error::Trimmed { .. }) => {
                next = space.partition.offsets().first;
                continue;
            }
            read => read?,
        };
        let Some(last) = batches.last() else { break };
        next = last.next_offset();
        unsettled.extend(batches);
        space.settle(&mut unsettled);
    }
    // What is not settled yet is read again.
    Ok(unsettled.front().map_or(next, RecordBatch::base_offset))
}

impl Space {
    /// Gives what the log promises to keep.
    fn settle(&self, unsettled: &mut VecDeque<RecordBatch>) {
        let stable = self.partition.offsets().stable;
        while let Some(batch) = unsettled.pop_front_if(|batch| batch.next_offset() <= stable) {
            self.give(&batch, |message| message.qos > Qos::AtMostOnce);
            self.state.lock().next = batch.next_offset().0;
        }
    }

    fn give(&self, batch: &RecordBatch, is_due: impl Fn(&Lying<'_>) -> bool) {
        let limits = self.limits();
        let mut lost = 0;
        let mut state = self.state.lock();
        for record in batch.records().map_while(Result::ok) {
            let Some(message) = Lying::read(&record).filter(|message| is_due(message)) else { continue };
            lost += state.deliver(
                record.offset.0,
                &message,
                &mut Kept::new(&self.room, record.offset < self.began),
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

    /// Whether the topic is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().is_gone
    }
}
