//! The appender writes the journal.
//!
//! Each turn takes everything accepted since the last turn, from all partitions, and writes it: many small appends
//! become one write. While the sync thread waits for the disk, the appender writes the next round.
//!
//! One thread at a time takes a turn: the appender's own thread, or a thread that appends and calls
//! [`crate::Embedded::write_accepted`]. Such a thread takes short turns only. It leaves a large round, and one that
//! does not fit the current journal file, to the appender's thread.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::ack::{AckWaiter, fail, fail_on_full_disk};
use crate::frame::FrameStamp;
use crate::group_commit::{JournalEntry, JournalItem, JournalRound, TakenAppends};
use crate::journal::JournalWriter;
use crate::queues::Queues;
use crate::shared::EngineShared;
use crate::{AckLevel, Error};

/// Most bytes that a thread other than the appender's own writes.
const BRIEF_BYTES: u64 = 128 << 10;

/// The appender's lock and its handles on the engine.
pub(crate) struct Appender {
    shared: Arc<EngineShared>,
    queues: Arc<Queues>,
    state: Mutex<AppenderState>,
}

impl Appender {
    pub(crate) fn new(shared: &Arc<EngineShared>, queues: &Arc<Queues>, next_sequence: u64) -> Self {
        let writer = JournalWriter::new(shared.journal.clone(), shared.salt);
        let state = AppenderState {
            shared: shared.clone(),
            queues: queues.clone(),
            writer,
            next_sequence,
            waiters: Vec::new(),
            left: TakenAppends::default(),
        };
        Self { shared: shared.clone(), queues: queues.clone(), state: Mutex::new(state) }
    }

    /// Runs until the work queue is stopped and empty.
    pub(crate) fn run(&self) {
        while self.queues.work.wait() {
            self.turn();
        }
    }

    /// Takes a turn; waits for a running turn first.
    pub(crate) fn turn(&self) {
        self.state.lock().turn();
    }

    /// Takes a turn if there is work and no other turn is running; if it `may_not_wait`, a short one. `true` if it did.
    pub(crate) fn turn_if_free(&self, may_not_wait: bool) -> bool {
        let Some(mut state) = self.queues.work.has_work().then(|| self.state.try_lock()).flatten() else {
            return false;
        };
        if may_not_wait {
            return state.turn_briefly();
        }
        state.turn();
        true
    }

    /// Takes a turn if it is short; otherwise wakes the appender's thread.
    pub(crate) fn turn_briefly(&self) {
        let is_little = self.shared.backpressure.pending_bytes() as u64 <= BRIEF_BYTES;
        let is_done = is_little && self.state.try_lock().is_some_and(|mut state| state.turn_briefly());
        if !is_done {
            self.queues.work.urge();
        }
    }
}

/// The writing state; its lock holder takes the turn.
struct AppenderState {
    shared: Arc<EngineShared>,
    queues: Arc<Queues>,
    writer: JournalWriter,
    next_sequence: u64,
    /// Callers of the round that is being written.
    waiters: Vec<AckWaiter>,
    /// Appends that were taken from the queue and are still to be written.
    left: TakenAppends,
}

impl AppenderState {
    fn turn(&mut self) {
        let mut taken = std::mem::take(&mut self.left);
        take(&self.shared, &self.queues, &mut taken);
        self.settle(taken);
    }

    /// Takes a short turn. `false` if it left the round to the appender's thread.
    fn turn_briefly(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.left);
        take(&self.shared, &self.queues, &mut taken);
        let bytes = taken.entries.iter().map(|entry| entry.item.frame_bytes()).sum();
        if bytes > 0 && (bytes > BRIEF_BYTES || !self.writer.has_room(bytes)) {
            self.left = taken;
            self.queues.work.leave();
            return false;
        }
        self.settle(taken);
        true
    }

    fn settle(&mut self, taken: TakenAppends) {
        if taken.is_empty() {
            return;
        }
        self.waiters = taken.waiters;
        let written = match self.shared.ended() {
            Some(error) => Err(error),
            None => self.write(taken.entries, self.waiters.iter().any(|waiter| waiter.level == AckLevel::Synced)),
        };
        self.shared.backpressure.release(taken.pending_bytes);
        let waiters = std::mem::take(&mut self.waiters);
        match written {
            Ok(round) => self.hand_over(JournalRound { waiters, ..round }),
            Err(cause) => fail(waiters, &self.shared.end(&cause)),
        }
    }

    /// Writes the entries in as few frames as possible and never splits an append. `is_awaited` is passed on to the
    /// rounds, also to those that are handed over early.
    fn write(&mut self, mut entries: Vec<JournalEntry>, is_awaited: bool) -> Result<JournalRound, Error> {
        entries.sort_by_key(|entry| entry.order);
        let mut round = JournalRound { is_awaited, ..JournalRound::default() };
        let mut rest = entries.into_iter().peekable();
        let mut group = Vec::new();
        while let Some(entry) = rest.next() {
            let order = entry.order;
            group.push(entry.item);
            while let Some(entry) = rest.next_if(|next| next.order == order) {
                group.push(entry.item);
            }
            self.write_group(&mut group, &mut round)?;
        }
        self.write_frame(&mut round)?;
        Ok(round)
    }

    fn write_group(&mut self, group: &mut Vec<JournalItem>, round: &mut JournalRound) -> Result<(), Error> {
        let bytes = group.iter().map(JournalItem::frame_bytes).sum();
        if bytes > 0 {
            if !self.writer.fits(bytes) {
                self.write_frame(round)?;
            }
            if self.writer.frame().is_empty() && !self.writer.has_room(bytes) {
                self.next_file(bytes, round)?;
            }
        }
        for item in group.drain(..) {
            item.push_to(self.writer.frame());
            round.framed(item);
        }
        Ok(())
    }

    /// Switches to the next journal file. It hands over the written round first: the writeback thread may need that
    /// round's frames in the segments before it can free a file.
    fn next_file(&mut self, bytes: u64, round: &mut JournalRound) -> Result<(), Error> {
        let next = JournalRound { is_awaited: round.is_awaited, ..JournalRound::default() };
        let full = std::mem::replace(round, next);
        self.hand_over(full);
        let Self { shared, queues, writer, next_sequence, waiters, left } = self;
        let woken = || {
            let Some(shortage) = shared.space.shortage() else { return };
            // Appends that were admitted before the shortage was known wait as well.
            take(shared, queues, left);
            queues.work.leave();
            fail_on_full_disk(waiters, &shortage);
            fail_on_full_disk(&mut left.waiters, &shortage);
        };
        match writer.next_file(bytes, *next_sequence, || shared.ended().is_some(), woken)? {
            true => Ok(()),
            false => Err(self.shared.ended().unwrap_or(Error::Stopped)),
        }
    }

    fn write_frame(&mut self, round: &mut JournalRound) -> Result<(), Error> {
        if self.writer.frame().is_empty() {
            return Ok(());
        }
        debug_assert!(self.next_sequence > self.queues.sync.place().sequence, "what is not written is not durable");
        let stamp = FrameStamp {
            sequence: self.next_sequence,
            durable: self.queues.sync.place().sequence,
            written_ms: self.shared.wall.now_ms(),
            epoch: self.shared.epoch,
        };
        let written = self.writer.write(&stamp)?;
        round.place = Some(written.place);
        round.bytes += written.bytes;
        round.touched.push(written.file);
        self.next_sequence += 1;
        self.shared.counters.frame_written();
        Ok(())
    }

    /// Publishes the written round and passes it to the sync thread.
    fn hand_over(&self, mut round: JournalRound) {
        let mut demand = round.is_awaited || !round.effects.is_empty();
        for (partition, end) in &round.ends {
            partition.set_written(*end);
            demand |= partition.level() == AckLevel::Synced || partition.is_far_ahead(*end);
            partition.watchers.ring();
        }
        round.answer(AckLevel::Written);
        self.queues.sync.push(round, demand);
        if self.shared.journal.has_full() {
            self.queues.flush.wake();
        }
    }
}

/// Takes everything that has been accepted so far.
fn take(shared: &EngineShared, queues: &Queues, taken: &mut TakenAppends) {
    let _gate = shared.gate();
    let (dirty, controls) = queues.work.take();
    for partition in dirty {
        partition.drain(taken);
    }
    for control in controls {
        taken.entries.push(control.entry);
        taken.waiters.extend(control.waiter);
        taken.pending_bytes += control.pending_bytes;
    }
}
