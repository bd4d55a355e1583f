//! The way on after an append whose outcome is unknown: the name of the owner's writer is taken again, which decides what
//! is stored, and the owner's partition is read. So the owner knows which of its appends landed, and sends the others again.
//!
//! It waits for the log, so it runs on a thread of its own. Invariant: nothing but the owner's appends is in its partition, each
//! whole or not at all, in the order in which they were sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Appended, Error, Log, Partition, UpTo, Writer};
use millstream_types::{BatchLimits, Epoch, Offset};

use crate::flight::InFlightAppend;
use crate::view::View;

/// Bytes per read of the partition.
const READ_BYTES: usize = 1 << 20;
/// Delay before the log is asked again that could not answer.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The next writer of an owner, and the records that the one before has left.
pub(crate) struct DecidedOutcome {
    pub(crate) writer: Arc<dyn Writer>,
    stored: Vec<(Offset, Epoch)>,
    taken: usize,
}

/// The appends in flight, told apart by what is stored. Those that landed or are to be sent again stay in flight.
pub(crate) struct ToldApart<V: View> {
    /// Appends that nobody can know about, as they have no record in the owner's partition, hence no part in its state.
    pub(crate) unknown: Vec<InFlightAppend<V>>,
    /// `false` if records are stored that are not those of the appends in flight.
    pub(crate) fits: bool,
}

impl DecidedOutcome {
    /// Marks the appends in flight that are stored as landed, and the others as unsent, with new ids.
    pub(crate) fn tell_apart<V: View>(
        &mut self,
        flights: &mut VecDeque<InFlightAppend<V>>,
        mut new_id: impl FnMut() -> u64,
    ) -> ToldApart<V> {
        let (mut unknown, mut fits, mut is_behind_a_lost_one) = (Vec::new(), true, false);
        for mut flight in std::mem::take(flights) {
            let is_read = self.taken == self.stored.len();
            if flight.own_records > 0 && !is_read {
                flight.last = self.take(flight.own_records);
                fits &= flight.last.is_some();
                (flight.landed, flight.unsent) = (true, None);
            } else if flight.own_records > 0 || is_behind_a_lost_one || flight.unsent.is_some() {
                if !flight.is_unchanged() {
                    flight.send_again(new_id());
                }
                is_behind_a_lost_one = true;
            } else if is_read && !flight.landed {
                unknown.push(flight);
                continue;
            } else {
                // One behind it is stored.
                flight.landed = true;
            }
            flights.push_back(flight);
        }
        fits &= self.taken == self.stored.len();
        if !fits {
            // None of them is known to be stored.
            flights.iter_mut().for_each(|flight| flight.landed = false);
        }
        ToldApart { unknown, fits }
    }

    /// Takes the next records; `None` if there are fewer, or others between them.
    fn take(&mut self, records: usize) -> Option<Appended> {
        let taken = self.stored.get(self.taken..self.taken + records)?;
        let ((first, _), (last, epoch)) = (*taken.first()?, *taken.last()?);
        self.taken += records;
        (last.0 - first.0 + 1 == records as u64).then_some(Appended { first, last, epoch })
    }
}

/// Takes the name of a writer again, and finds what is stored from `from` on: all of it, or more than `records_max`. Asks
/// again while the log cannot answer, for as long as `goes_on` says so of the error.
pub(crate) fn decide(
    log: &dyn Log,
    partition: &dyn Partition,
    writer: &str,
    from: Offset,
    records_max: usize,
    goes_on: impl Fn(&Error) -> bool,
) -> Result<DecidedOutcome, Error> {
    loop {
        let decided = log.writer(writer).and_then(|writer| {
            let stored = stored(partition, from, records_max)?;
            Ok(DecidedOutcome { writer, stored, taken: 0 })
        });
        match decided {
            Err(error) if error.is_retryable() && goes_on(&error) => std::thread::sleep(RETRY_AFTER),
            decided => return decided,
        }
    }
}

fn stored(partition: &dyn Partition, from: Offset, records_max: usize) -> Result<Vec<(Offset, Epoch)>, Error> {
    let undecodable = |source| Error::Batch { partition: partition.id().clone(), source };
    let (mut next, mut stored) = (from, Vec::new());
    while stored.len() <= records_max {
        let batches = partition.read(next, READ_BYTES, UpTo::Stable)?;
        let Some(last) = batches.last() else { break };
        next = last.next_offset();
        for batch in batches {
            let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
            for record in batch.records() {
                let offset = record.map_err(undecodable)?.offset;
                if offset >= from {
                    stored.push((offset, batch.epoch()));
                }
            }
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_log::{AckLevel, AtomicAppend, Done};
    use millstream_types::{MemoryBudget, Record, TopicName, TopicPartition};

    use super::*;
    use crate::Sources;
    use crate::tally::TallyView;
    use crate::view::Publish;

    struct NoWriter;

    impl Writer for NoWriter {
        fn name(&self) -> &str {
            "nobody"
        }

        fn append(&self, _: &TopicPartition, _: &[Record<'_>]) -> Result<(), Error> {
            Err(Error::Stopped)
        }

        fn commit(&self, _: &AtomicAppend<'_>, _: AckLevel, _: Done<Vec<Appended>>) -> Result<(), Error> {
            Err(Error::Stopped)
        }

        fn abort(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    /// An append of three changes (`c`), of a record for another topic (`p`), or of nothing (`n`). A capital letter has been
    /// answered. Its number is its id and its time.
    fn flight(number: u64, kind: char) -> InFlightAppend<TallyView> {
        let to = TopicPartition::new(TopicName::internal("_millstream-elsewhere"), 0);
        let publishes = kind.eq_ignore_ascii_case(&'p');
        InFlightAppend {
            id: number,
            landed: kind.is_ascii_uppercase() || kind == 'n',
            last: None,
            size_bytes: 0,
            memory: MemoryBudget::new("test", 1).empty_grant(),
            held: Default::default(),
            sources: Sources::new(),
            answers: Vec::new(),
            level: AckLevel::Synced,
            now_ms: number as i64,
            unsent: None,
            published: if publishes { vec![(to, Publish::default())] } else { Vec::new() },
            refused: None,
            own_records: if kind.eq_ignore_ascii_case(&'c') { 3 } else { 0 },
        }
    }

    /// The fates of appends in flight where `stored` records are found; `None` if these are not theirs.
    fn fates(kinds: &str, stored: u64) -> Option<Vec<&'static str>> {
        let mut flights: VecDeque<_> = (1..).zip(kinds.chars()).map(|(number, kind)| flight(number, kind)).collect();
        let stored = (10..10 + stored).map(|offset| (Offset(offset), Epoch(7))).collect();
        let mut decided = DecidedOutcome { writer: Arc::new(NoWriter), stored, taken: 0 };
        let mut last_id = 100;
        let told = decided.tell_apart(&mut flights, || {
            last_id += 1;
            last_id
        });
        let in_flight = flights.iter().map(|flight| {
            let is_new = flight.id > 100;
            assert_eq!(is_new, flight.unsent.is_some(), "a late answer finds another append");
            (flight.now_ms, if is_new { "again" } else { ["open", "landed"][usize::from(flight.landed)] })
        });
        let unknown = told.unknown.iter().map(|flight| (flight.now_ms, "unknown"));
        let mut all: Vec<_> = in_flight.chain(unknown).collect();
        all.sort_unstable();
        assert_eq!(all.iter().map(|(number, _)| *number as usize).collect::<Vec<_>>(), Vec::from_iter(1..=kinds.len()));
        let changes = flights.iter().filter(|flight| flight.landed && flight.own_records > 0);
        for (flight, at) in changes.zip((10..).step_by(3)) {
            assert_eq!(flight.last, Some(Appended { first: Offset(at), last: Offset(at + 2), epoch: Epoch(7) }));
        }
        assert!(told.fits || flights.iter().all(|flight| !flight.landed));
        told.fits.then(|| all.into_iter().map(|(_, fate)| fate).collect())
    }

    #[test]
    fn appends_in_flight_are_told_apart_by_what_is_stored() {
        let table: [(&str, u64, Option<&[&str]>); 13] = [
            ("c", 0, Some(&["again"])),
            ("c", 3, Some(&["landed"])),
            ("ccc", 6, Some(&["landed", "landed", "again"])),
            ("Cc", 6, Some(&["landed", "landed"])),
            ("p", 0, Some(&["unknown"])),
            ("P", 0, Some(&["landed"])),
            ("ppc", 3, Some(&["landed", "landed", "landed"])),
            ("ppc", 0, Some(&["unknown", "unknown", "again"])),
            ("cpp", 3, Some(&["landed", "unknown", "unknown"])),
            ("cpn", 0, Some(&["again", "again", "landed"])),
            ("cnc", 3, Some(&["landed", "landed", "again"])),
            ("cc", 4, None),
            ("c", 4, None),
        ];
        for (kinds, stored, expected) in table {
            assert_eq!(fates(kinds, stored).as_deref(), expected, "{kinds}, {stored} stored");
        }
    }
}
