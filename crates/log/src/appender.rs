//! The appender: the one thread that writes the journal.
//!
//! Each turn takes whatever has been accepted since the last one, from all partitions, and writes it: many small appends
//! become one write. While the sync thread waits for the disk, the appender goes on writing the next round.

use std::sync::Arc;

use crate::frame::Stamp;
use crate::journal::{JournalWriter, Room};
use crate::round::{Entry, Round};
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
        let mut round = self.take();
        let written = match self.shared.ended() {
            Some(error) => Err(error),
            None => self.write(&mut round),
        };
        self.shared.release(round.pending_bytes);
        if let Err(cause) = written {
            let error = self.shared.end(&cause);
            round.fail(&error);
            return;
        }
        let mut synced_topics = false;
        for (partition, end) in &round.ends {
            partition.set_written(*end);
            synced_topics |= partition.level() == AckLevel::Synced;
            partition.watchers.ring();
        }
        round.answer(AckLevel::Written);
        let demand = synced_topics || !round.waiters.is_empty() || !round.effects.is_empty();
        self.shared.sync.push(round, demand);
        if self.shared.journal.is_half_full() {
            self.shared.flush.wake();
        }
    }

    /// Everything that has been accepted up to one moment.
    fn take(&self) -> Round {
        let mut round = Round::default();
        let _gate = self.shared.gate();
        let (dirty, controls) = self.shared.work.take();
        for partition in dirty {
            partition.drain(&mut round);
        }
        for control in controls {
            round.entries.push(control.entry);
            round.effects.extend(control.effects);
            round.waiters.extend(control.waiter);
            round.pending_bytes += control.pending_bytes;
        }
        round
    }

    /// Writes the round in as few frames as it fits into, never dividing an atomic append.
    fn write(&mut self, round: &mut Round) -> Result<(), Error> {
        round.entries.sort_by_key(|entry| entry.order);
        let entries = std::mem::take(&mut round.entries);
        let mut rest = entries.as_slice();
        while let Some(entry) = rest.first() {
            let together = rest.iter().take_while(|other| other.order == entry.order).count();
            let (group, later) = rest.split_at(together);
            self.write_group(group, round)?;
            rest = later;
        }
        self.write_frame(round)?;
        round.touched = self.writer.take_touched();
        Ok(())
    }

    fn write_group(&mut self, group: &[Entry], round: &mut Round) -> Result<(), Error> {
        let bytes = group.iter().map(|entry| entry.item.frame_bytes()).sum();
        if bytes == 0 {
            return Ok(());
        }
        if !self.writer.fits(bytes) {
            self.write_frame(round)?;
        }
        if self.writer.frame().is_empty() {
            let shared = &self.shared;
            let room = self.writer.make_room(bytes, self.next_sequence, || shared.ended().is_some())?;
            if room == Room::GivenUp {
                return Err(self.shared.ended().unwrap_or(Error::Stopped));
            }
        }
        group.iter().for_each(|entry| entry.item.push_to(self.writer.frame()));
        Ok(())
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
        round.place = Some(self.writer.write(&stamp)?);
        self.next_sequence += 1;
        self.shared.counters.frame_written();
        Ok(())
    }
}
