//! One queue of a tenant's stream, from which its receivers take records in turn.
//!
//! A queue reads each partition in order, up to its stable offset. A record that a receiver gives back is offered again before
//! later ones. Records are in memory only while they are on their way: of those that were handed out and are not settled the
//! receivers keep offsets, and one that comes back is read again.
//!
//! A queue of events also keeps these offsets by itself, as its positions: what it has handed out and nobody has settled is
//! offered again after a restart.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_log::{Bell, CachedRead, Error, Partition, UpTo};
use millstream_types::{
    BatchError, BatchLimits, Grant, Offset, RecordBatch, RecordCursor, RecordView, StoredRecord, header,
};
use parking_lot::Mutex;

use super::durable_records::DurableRecords;
use super::queue_positions::QueuePosition;
use super::reply_address::Reply;

/// Bytes of one read from the log.
const READ_BYTES: usize = 64 << 10;

/// A record that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    partition: u32,
    offset: Offset,
    /// Times that it was handed out before and not accepted.
    pub(super) failed_deliveries: u32,
}

#[cfg(test)]
impl Taken {
    pub(super) fn at(partition: u32, offset: Offset) -> Self {
        Self { partition, offset, failed_deliveries: 0 }
    }
}

/// The end of an attempt to take records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pulled {
    /// The receiver wants no more for now.
    Enough,
    /// There are no more; the receiver's bell rings when there are.
    Empty,
    /// There may be more, and no memory to keep them in mind.
    Starved,
    /// The queue cannot go on, for this reason.
    Broken(String),
}

/// A queue of a tenant's stream.
pub(super) struct StreamQueue {
    state: Mutex<QueueState>,
    /// Memory of the records that are on their way.
    _room: Grant,
}

#[derive(Default)]
struct QueueState {
    partitions: Vec<PartitionCursor>,
    /// The partition to look at next.
    turn: usize,
    /// The bells of receivers, each with its number.
    receivers: Vec<(u64, Arc<Bell>)>,
    next_receiver: u64,
    /// The records that are not settled, of a queue of events.
    durable: Option<DurableRecords>,
    /// The receiver of responses for whom the queue is; empty for all.
    reply: Box<str>,
    /// The reason for which it cannot go on.
    broken: Option<String>,
}

/// The place of a queue in one partition.
struct PartitionCursor {
    partition: Arc<dyn Partition>,
    /// The offset behind all batches that were read.
    next: Offset,
    /// The first offset that was not handed out, while there are batches.
    begun: Offset,
    batches: VecDeque<(RecordBatch, RecordCursor)>,
    /// Offsets that were given back, with the number of failed deliveries.
    returned: BTreeMap<u64, u32>,
    /// One of those, read from the disk.
    reread: Option<(StoredRecord, u32)>,
    is_loading: bool,
}

/// The records that are to be read from the disk.
enum Load {
    Batches(Offset),
    Returned(Offset, u32),
}

/// A receiver's place at a queue; it is given up when dropped.
pub(super) struct QueueReceiver {
    queue: Arc<StreamQueue>,
    number: u64,
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        self.queue.state.lock().receivers.retain(|(number, _)| *number != self.number);
    }
}

impl StreamQueue {
    /// Memory that a queue of so many partitions counts for: one read of each.
    pub(super) fn memory_bytes(partitions: usize) -> u64 {
        (partitions * READ_BYTES) as u64
    }

    /// A queue of what comes to these partitions from now on.
    pub(super) fn from_now_on(partitions: &[Arc<dyn Partition>], reply: &str, room: Grant) -> Arc<Self> {
        let cursor = |partition| PartitionCursor::at(partition, partition.offsets().stable);
        let partitions = partitions.iter().map(cursor).collect();
        Arc::new(Self {
            state: Mutex::new(QueueState { partitions, reply: reply.into(), ..QueueState::default() }),
            _room: room,
        })
    }

    /// A queue of events from its positions on, of which there is one for each partition.
    pub(super) fn of_events(
        partitions: &[Arc<dyn Partition>],
        positions: &[QueuePosition],
        mut durable: DurableRecords,
        room: Grant,
    ) -> Arc<Self> {
        let mut cursors = Vec::with_capacity(partitions.len());
        for (number, (partition, position)) in partitions.iter().zip(positions).enumerate() {
            let mut cursor = PartitionCursor::at(partition, position.next);
            for (offset, failed) in &position.open {
                durable.open(number as u32, *offset, (*failed).into());
                cursor.returned.insert(offset.0, (*failed).into());
            }
            cursors.push(cursor);
        }
        let state = QueueState { partitions: cursors, durable: Some(durable), ..QueueState::default() };
        Arc::new(Self { state: Mutex::new(state), _room: room })
    }

    /// The positions of a queue of events, one for each partition, if they have changed since they were taken last.
    pub(super) fn take_changed(&self, now_ms: i64) -> Option<Vec<QueuePosition>> {
        let mut state = self.state.lock();
        let QueueState { partitions, durable, .. } = &mut *state;
        let durable = durable.as_mut().filter(|durable| durable.is_due(now_ms))?;
        let positions = partitions.iter().enumerate().map(|(number, cursor)| QueuePosition {
            topic: cursor.partition.topic().id,
            stored_ms: now_ms,
            next: cursor.position(),
            open: durable.of_partition(number as u32),
        });
        let positions = positions.collect();
        durable.stored(now_ms);
        Some(positions)
    }

    /// The positions that were taken last are not stored.
    pub(super) fn store_again(&self) {
        if let Some(durable) = &mut self.state.lock().durable {
            durable.store_again();
        }
    }

    /// True if it has receivers, or changes that are not stored.
    pub(super) fn is_used(&self) -> bool {
        let state = self.state.lock();
        !state.receivers.is_empty() || state.durable.as_ref().is_some_and(DurableRecords::has_changed)
    }

    /// True if it cannot go on.
    pub(super) fn is_broken(&self) -> bool {
        self.state.lock().broken.is_some()
    }

    /// Joins a receiver, whose bell rings when there may be something to take.
    pub(super) fn join(self: &Arc<Self>, bell: Arc<Bell>) -> QueueReceiver {
        let mut state = self.state.lock();
        state.partitions.iter().for_each(|cursor| cursor.partition.watch(&bell));
        let number = state.next_receiver;
        state.next_receiver += 1;
        state.receivers.push((number, bell));
        QueueReceiver { queue: Arc::clone(self), number }
    }

    fn pull(
        self: &Arc<Self>,
        is_settled: bool,
        mut take: impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>,
    ) -> Pulled {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(why) = &state.broken {
            return Pulled::Broken(why.clone());
        }
        let mut terms = Terms::of(state.durable.as_mut(), &state.reply, is_settled);
        let count = state.partitions.len();
        for step in 0..count {
            let at = (state.turn + step) % count;
            let Some(cursor) = state.partitions.get_mut(at) else { continue };
            match cursor.pull(at as u32, &mut terms, &mut take) {
                Ok(CursorEnd::Enough) => {
                    state.turn = at;
                    return Pulled::Enough;
                }
                Ok(CursorEnd::Starved) => {
                    state.turn = at;
                    return Pulled::Starved;
                }
                Ok(CursorEnd::Empty) => {}
                Ok(CursorEnd::OnDisk(load)) => {
                    cursor.is_loading = true;
                    let (queue, partition) = (Arc::clone(self), Arc::clone(&cursor.partition));
                    tokio::task::spawn_blocking(move || queue.load(at, &*partition, load));
                }
                Err(error) => {
                    let why = format!("the stream cannot be read: {error}");
                    tracing::warn!(partition = %cursor.partition.id(), %error, "amqp: a queue ends");
                    state.broken = Some(why.clone());
                    state.ring();
                    return Pulled::Broken(why);
                }
            }
        }
        state.turn = (state.turn + 1) % count.max(1);
        Pulled::Empty
    }

    /// Reads from the disk, and tells the receivers.
    fn load(&self, at: usize, partition: &dyn Partition, load: Load) {
        let returned = match load {
            Load::Batches(_) => None,
            Load::Returned(offset, _) => Some(offset),
        };
        let loaded = match load {
            Load::Batches(from) => read(partition, from).map(|batches| (batches, None)),
            Load::Returned(offset, failed) => {
                let record = partition.read_one(offset, UpTo::Stable);
                record.map(|record| (Vec::new(), record.map(|record| (record, failed))))
            }
        };
        let mut state = self.state.lock();
        let QueueState { partitions, durable, .. } = &mut *state;
        let Some(cursor) = partitions.get_mut(at) else { return };
        cursor.is_loading = false;
        match loaded {
            Ok((batches, reread)) => {
                if let (None, Some(offset), Some(durable)) = (&reread, returned, durable) {
                    // Trimmed meanwhile.
                    durable.done(at as u32, offset);
                }
                cursor.reread = cursor.reread.take().or(reread);
                cursor.add(batches);
            }
            Err(Error::Trimmed { .. }) => cursor.next = partition.offsets().first,
            Err(error) => {
                tracing::warn!(partition = %partition.id(), %error, "amqp: a queue ends");
                state.broken = Some(format!("the stream cannot be read: {error}"));
            }
        }
        state.ring();
    }
}

/// The terms on which one attempt takes records.
struct Terms<'a> {
    durable: Option<&'a mut DurableRecords>,
    /// Number of records that may be open.
    open_max: usize,
    now_ms: i64,
    reply: &'a str,
    is_settled: bool,
}

impl<'a> Terms<'a> {
    fn of(mut durable: Option<&'a mut DurableRecords>, reply: &'a str, is_settled: bool) -> Self {
        let (open_max, now_ms) =
            durable.as_mut().map_or((usize::MAX, 0), |durable| (durable.open_max(), durable.now_ms()));
        Self { durable, open_max, now_ms, reply, is_settled }
    }

    /// True if another record may be handed out for the first time.
    fn has_room(&self) -> bool {
        self.is_settled || self.durable.as_ref().is_none_or(|durable| durable.len() < self.open_max)
    }

    /// Hands a record to `take`, and notes what becomes of it. One that has expired is done.
    fn hand(
        &mut self,
        record: &RecordView<'_>,
        taken: Taken,
        take: &mut impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.reply.is_empty() && !is_for(record, self.reply) {
            return ControlFlow::Continue(());
        }
        if let Some(durable) = &mut self.durable {
            let is_void = record.is_void(self.now_ms);
            if is_void || self.is_settled {
                durable.done(taken.partition, taken.offset);
            } else {
                durable.open(taken.partition, taken.offset, taken.failed_deliveries);
            }
            if is_void {
                return ControlFlow::Continue(());
            }
        }
        take(record, taken)
    }

    /// A record that was given back is there no more.
    fn lost(&mut self, partition: u32, offset: Offset) {
        if let Some(durable) = &mut self.durable {
            durable.done(partition, offset);
        }
    }
}

/// True if the record is a response for this receiver.
fn is_for(record: &RecordView<'_>, reply: &str) -> bool {
    let id = record.header(header::CORRELATION_ID).and_then(|id| std::str::from_utf8(id).ok());
    id.and_then(Reply::parse).is_some_and(|of| of.reply() == reply)
}

/// The end of an attempt to take records of one partition.
enum CursorEnd {
    Enough,
    Empty,
    /// There is no memory to keep another one in mind.
    Starved,
    /// The records have to be read from the disk.
    OnDisk(Load),
}

impl PartitionCursor {
    fn at(partition: &Arc<dyn Partition>, next: Offset) -> Self {
        Self {
            partition: Arc::clone(partition),
            next,
            begun: next,
            batches: VecDeque::new(),
            returned: BTreeMap::new(),
            reread: None,
            is_loading: false,
        }
    }

    /// The first offset that was not handed out.
    fn position(&self) -> Offset {
        if self.batches.is_empty() { self.next } else { self.begun }
    }

    fn pull(
        &mut self,
        number: u32,
        terms: &mut Terms<'_>,
        take: &mut impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>,
    ) -> Result<CursorEnd, Error> {
        if self.is_loading {
            return Ok(CursorEnd::Empty);
        }
        let taken = |offset, failed_deliveries| Taken { partition: number, offset, failed_deliveries };
        if let Some((record, failed)) = self.reread.take()
            && terms.hand(&record.view(), taken(record.offset, failed), take).is_break()
        {
            return Ok(CursorEnd::Enough);
        }
        while let Some((offset, failed)) = self.returned.pop_first() {
            let offset = Offset(offset);
            match self.partition.read_one_cached(offset, UpTo::Stable)? {
                CachedRead::OnDisk => return Ok(CursorEnd::OnDisk(Load::Returned(offset, failed))),
                // Trimmed meanwhile.
                CachedRead::Read(None) => terms.lost(number, offset),
                CachedRead::Read(Some(record)) => {
                    if terms.hand(&record.view(), taken(offset, failed), take).is_break() {
                        return Ok(CursorEnd::Enough);
                    }
                }
            }
        }
        loop {
            while let Some((batch, place)) = self.batches.front_mut() {
                let mut records = batch.records_from(*place);
                while let Some(record) = records.next() {
                    if !terms.has_room() {
                        return Ok(CursorEnd::Starved);
                    }
                    let record = record.map_err(|source| undecodable(&*self.partition, source))?;
                    *place = records.cursor();
                    self.begun = record.offset.next();
                    if terms.hand(&record, taken(record.offset, 0), take).is_break() {
                        return Ok(CursorEnd::Enough);
                    }
                }
                self.batches.pop_front();
            }
            let read = match self.partition.read_from_memory(self.next, READ_BYTES, UpTo::Stable) {
                Err(Error::Trimmed { .. }) => {
                    self.next = self.partition.offsets().first;
                    continue;
                }
                read => read?,
            };
            match read {
                None => return Ok(CursorEnd::OnDisk(Load::Batches(self.next))),
                Some(batches) if batches.is_empty() => return Ok(CursorEnd::Empty),
                Some(batches) => self.add(inflated(&*self.partition, batches)?),
            }
        }
    }

    /// Adds batches that were read at `next`; of the first one, records before that were taken already.
    fn add(&mut self, batches: Vec<RecordBatch>) {
        if self.batches.is_empty() {
            self.begun = self.next;
        }
        for batch in batches {
            let mut records = batch.records();
            let mut place = records.cursor();
            while records.next().is_some_and(|record| record.is_ok_and(|record| record.offset < self.next)) {
                place = records.cursor();
            }
            self.next = batch.next_offset();
            self.batches.push_back((batch, place));
        }
    }
}

fn read(partition: &dyn Partition, from: Offset) -> Result<Vec<RecordBatch>, Error> {
    inflated(partition, partition.read(from, READ_BYTES, UpTo::Stable)?)
}

fn inflated(partition: &dyn Partition, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, Error> {
    let inflate = |batch: &RecordBatch| batch.inflated(&BatchLimits::default());
    let inflated = batches.iter().map(inflate).collect::<Result<_, _>>();
    inflated.map_err(|source| undecodable(partition, source))
}

fn undecodable(partition: &dyn Partition, source: BatchError) -> Error {
    Error::Batch { partition: partition.id().clone(), source }
}

impl QueueState {
    fn ring(&self) {
        self.receivers.iter().for_each(|(_, bell)| bell.ring());
    }
}

impl QueueReceiver {
    /// Hands records to `take` until that breaks off, which it does behind the last one that it wants. With `is_settled` they are
    /// done then.
    pub(super) fn pull(&self, is_settled: bool, take: impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>) -> Pulled {
        self.queue.pull(is_settled, take)
    }

    /// Ends records: they were accepted, or can never be.
    pub(super) fn finish(&self, records: impl IntoIterator<Item = Taken>) {
        if let Some(durable) = &mut self.queue.state.lock().durable {
            records.into_iter().for_each(|record| durable.done(record.partition, record.offset));
        }
    }

    /// Gives back records that were not accepted. With `has_failed` that counts as a failed delivery.
    pub(super) fn give_back(&self, records: impl IntoIterator<Item = Taken>, has_failed: bool) {
        let mut state = self.queue.state.lock();
        let QueueState { partitions, durable, .. } = &mut *state;
        for Taken { partition, offset, failed_deliveries } in records {
            let failed = failed_deliveries + u32::from(has_failed);
            if let Some(cursor) = partitions.get_mut(partition as usize) {
                cursor.returned.insert(offset.0, failed);
            }
            if let Some(durable) = durable {
                durable.open(partition, offset, failed);
            }
        }
        state.ring();
    }
}
