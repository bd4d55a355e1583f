//! The appender: whoever writes the journal.
//!
//! Each turn takes whatever has been accepted since the last one, from all partitions, and writes it: many small appends
//! become one write. While the sync thread waits for the disk, the appender goes on writing the next round.
//!
//! Turns are taken one at a time, by a thread that does nothing else, or by one that appends and has said that it does
//! ([`crate::Embedded::write_accepted`]). The latter takes turns that end soon: what does not fit into the journal's current
//! file, or is much, it leaves to the former.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::frame::Stamp;
use crate::journal::JournalWriter;
use crate::round::{Entry, Item, Round, Taken, fail};
use crate::shared::Shared;
use crate::{AckLevel, Error};

/// Most bytes that a thread with other things to do writes.
const BRIEF_BYTES: u64 = 128 << 10;

/// See the module.
pub(crate) struct Appender {
    shared: Arc<Shared>,
    pen: Mutex<Pen>,
}

impl Appender {
    pub(crate) fn new(shared: &Arc<Shared>, next_sequence: u64) -> Self {
        let writer = JournalWriter::new(shared.journal.clone(), shared.salt);
        let pen = Pen { shared: shared.clone(), writer, next_sequence, left: Taken::default() };
        Self { shared: shared.clone(), pen: Mutex::new(pen) }
    }

    /// Runs until the work queue is stopped and empty.
    pub(crate) fn run(&self) {
        while self.shared.work.wait() {
            self.turn();
        }
    }

    /// Takes a turn, after the one that is being taken.
    pub(crate) fn turn(&self) {
        self.pen.lock().turn();
    }

    /// Takes a turn if that is soon done; else the thread that does nothing else is told.
    pub(crate) fn turn_briefly(&self) {
        let is_little = self.shared.room.pending_bytes() as u64 <= BRIEF_BYTES;
        let is_done = is_little && self.pen.try_lock().is_some_and(|mut pen| pen.turn_briefly());
        if !is_done {
            self.shared.work.urge();
        }
    }
}

/// Who has it writes.
struct Pen {
    shared: Arc<Shared>,
    writer: JournalWriter,
    next_sequence: u64,
    /// What has been taken and is still to be written.
    left: Taken,
}

impl Pen {
    fn turn(&mut self) {
        let mut taken = std::mem::take(&mut self.left);
        self.take(&mut taken);
        self.settle(taken);
    }

    /// Whether that is all.
    fn turn_briefly(&mut self) -> bool {
        let mut taken = std::mem::take(&mut self.left);
        self.take(&mut taken);
        let bytes = taken.entries.iter().map(|entry| entry.item.frame_bytes()).sum();
        if bytes > 0 && (bytes > BRIEF_BYTES || !self.writer.has_room(bytes)) {
            self.left = taken;
            self.shared.work.leave();
            return false;
        }
        self.settle(taken);
        true
    }

    fn settle(&mut self, taken: Taken) {
        if taken.is_empty() {
            return;
        }
        let written = match self.shared.ended() {
            Some(error) => Err(error),
            None => self.write(taken.entries, taken.waiters.iter().any(|waiter| waiter.level == AckLevel::Synced)),
        };
        self.shared.room.release(taken.pending_bytes);
        match written {
            Ok(round) => self.hand_over(Round { waiters: taken.waiters, ..round }),
            Err(cause) => fail(taken.waiters, &self.shared.end(&cause)),
        }
    }

    /// Adds everything that has been accepted up to one moment.
    fn take(&self, taken: &mut Taken) {
        let _gate = self.shared.gate();
        let (dirty, controls) = self.shared.work.take();
        for partition in dirty {
            partition.drain(taken);
        }
        for control in controls {
            taken.entries.push(control.entry);
            taken.waiters.extend(control.waiter);
            taken.pending_bytes += control.pending_bytes;
        }
    }

    /// Writes the entries in as few frames as they fit into, never dividing an append. Whether somebody waits for them to
    /// be synced goes with what has to be handed over before.
    fn write(&mut self, mut entries: Vec<Entry>, is_awaited: bool) -> Result<Round, Error> {
        entries.sort_by_key(|entry| entry.order);
        let mut round = Round { is_awaited, ..Round::default() };
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

    fn write_group(&mut self, group: &mut Vec<Item>, round: &mut Round) -> Result<(), Error> {
        let bytes = group.iter().map(Item::frame_bytes).sum();
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

    /// Goes on to the next file. What this turn has written is handed over first: its frames may fill the very files
    /// that must be brought to the segments before one is free again.
    fn next_file(&mut self, bytes: u64, round: &mut Round) -> Result<(), Error> {
        let next = Round { is_awaited: round.is_awaited, ..Round::default() };
        let full = std::mem::replace(round, next);
        self.hand_over(full);
        let shared = &self.shared;
        match self.writer.next_file(bytes, self.next_sequence, || shared.ended().is_some())? {
            true => Ok(()),
            false => Err(self.shared.ended().unwrap_or(Error::Stopped)),
        }
    }

    fn write_frame(&mut self, round: &mut Round) -> Result<(), Error> {
        if self.writer.frame().is_empty() {
            return Ok(());
        }
        let stamp = Stamp {
            sequence: self.next_sequence,
            durable: self.shared.sync.place().sequence,
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

    /// Tells what is written, and passes it on to be synced.
    fn hand_over(&self, mut round: Round) {
        let mut demand = round.is_awaited || !round.effects.is_empty();
        for (partition, end) in &round.ends {
            partition.set_written(*end);
            demand |= partition.level() == AckLevel::Synced || partition.is_far_ahead(*end);
            partition.watchers.ring();
        }
        round.answer(AckLevel::Written);
        self.shared.sync.push(round, demand);
        if self.shared.journal.has_full() {
            self.shared.flush.wake();
        }
    }
}
