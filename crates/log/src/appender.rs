//! The appender: the one thread that writes the journal.
//!
//! Each turn takes whatever has been accepted since the last one, from all partitions, and writes it: many small appends
//! become one write. While the sync thread waits for the disk, the appender goes on writing the next round.

use std::sync::Arc;

use crate::frame::Stamp;
use crate::journal::JournalWriter;
use crate::round::{Entry, Item, Round, Taken, fail};
use crate::shared::Shared;
use crate::{AckLevel, Error};

/// Runs until the work queue is stopped and empty.
pub(crate) fn run(shared: &Arc<Shared>, next_sequence: u64) {
    let mut appender = Appender {
        shared: shared.clone(),
        writer: JournalWriter::new(shared.journal.clone(), shared.salt),
        next_sequence,
    };
    while shared.work.wait() {
        appender.turn();
    }
}

struct Appender {
    shared: Arc<Shared>,
    writer: JournalWriter,
    next_sequence: u64,
}

impl Appender {
    fn turn(&mut self) {
        let taken = self.take();
        let written = match self.shared.ended() {
            Some(error) => Err(error),
            None => self.write(taken.entries),
        };
        self.shared.room.release(taken.pending_bytes);
        match written {
            Ok(round) => self.hand_over(Round { waiters: taken.waiters, ..round }),
            Err(cause) => fail(taken.waiters, &self.shared.end(&cause)),
        }
    }

    /// Everything that has been accepted up to one moment.
    fn take(&self) -> Taken {
        let mut taken = Taken::default();
        let _gate = self.shared.gate();
        let (dirty, controls) = self.shared.work.take();
        for partition in dirty {
            partition.drain(&mut taken);
        }
        for control in controls {
            taken.entries.push(control.entry);
            taken.waiters.extend(control.waiter);
            taken.pending_bytes += control.pending_bytes;
        }
        taken
    }

    /// Writes the entries in as few frames as they fit into, never dividing an append.
    fn write(&mut self, mut entries: Vec<Entry>) -> Result<Round, Error> {
        entries.sort_by_key(|entry| entry.order);
        let mut round = Round::default();
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
    /// that must be synced and brought to the segments before one is free again.
    fn next_file(&mut self, bytes: u64, round: &mut Round) -> Result<(), Error> {
        let full = std::mem::take(round);
        self.hand_over(full);
        self.shared.sync.demand();
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
        let mut demand = !round.effects.is_empty();
        for (partition, end) in &round.ends {
            partition.set_written(*end);
            demand |= partition.level() == AckLevel::Synced;
            partition.watchers.ring();
        }
        round.answer(AckLevel::Written);
        demand |= !round.waiters.is_empty();
        self.shared.sync.push(round, demand);
        if self.shared.journal.has_full() {
            self.shared.flush.wake();
        }
    }
}
