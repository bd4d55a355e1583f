//! One queue of a tenant's stream, from which its receivers take records in turn.
//!
//! A queue reads each partition in order, up to its stable offset. A record that a receiver gives back is offered again before
//! later ones. Records are in memory only while they are on their way: of those that were handed out and are not settled the
//! receivers keep offsets, and one that comes back is read again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_log::{Bell, CachedRead, Error, Partition, UpTo};
use millstream_types::{BatchError, BatchLimits, Grant, Offset, RecordBatch, RecordCursor, RecordView, StoredRecord};
use parking_lot::Mutex;

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
    /// The reason for which it cannot go on.
    broken: Option<String>,
}

/// The place of a queue in one partition.
struct PartitionCursor {
    partition: Arc<dyn Partition>,
    /// The offset behind all batches that were read.
    next: Offset,
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
    pub(super) fn from_now_on(partitions: &[Arc<dyn Partition>], room: Grant) -> Arc<Self> {
        let cursor = |partition: &Arc<dyn Partition>| PartitionCursor {
            partition: Arc::clone(partition),
            next: partition.offsets().stable,
            batches: VecDeque::new(),
            returned: BTreeMap::new(),
            reread: None,
            is_loading: false,
        };
        let partitions = partitions.iter().map(cursor).collect();
        Arc::new(Self { state: Mutex::new(QueueState { partitions, ..QueueState::default() }), _room: room })
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

    fn pull(self: &Arc<Self>, mut take: impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>) -> Pulled {
        let mut state = self.state.lock();
        if let Some(why) = &state.broken {
            return Pulled::Broken(why.clone());
        }
        let count = state.partitions.len();
        for step in 0..count {
            let at = (state.turn + step) % count;
            let Some(cursor) = state.partitions.get_mut(at) else { continue };
            match cursor.pull(at as u32, &mut take) {
                Ok(CursorEnd::Enough) => {
                    state.turn = at;
                    return Pulled::Enough;
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
        let loaded = match load {
            Load::Batches(from) => read(partition, from).map(|batches| (batches, None)),
            Load::Returned(offset, failed) => {
                let record = partition.read_one(offset, UpTo::Stable);
                record.map(|record| (Vec::new(), record.map(|record| (record, failed))))
            }
        };
        let mut state = self.state.lock();
        let Some(cursor) = state.partitions.get_mut(at) else { return };
        cursor.is_loading = false;
        match loaded {
            Ok((batches, reread)) => {
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

/// The end of an attempt to take records of one partition.
enum CursorEnd {
    Enough,
    Empty,
    /// The records have to be read from the disk.
    OnDisk(Load),
}

impl PartitionCursor {
    fn pull(
        &mut self,
        number: u32,
        take: &mut impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>,
    ) -> Result<CursorEnd, Error> {
        if self.is_loading {
            return Ok(CursorEnd::Empty);
        }
        let taken = |offset, failed_deliveries| Taken { partition: number, offset, failed_deliveries };
        if let Some((record, failed)) = self.reread.take()
            && take(&record.view(), taken(record.offset, failed)).is_break()
        {
            return Ok(CursorEnd::Enough);
        }
        while let Some((offset, failed)) = self.returned.pop_first() {
            let offset = Offset(offset);
            match self.partition.read_one_cached(offset, UpTo::Stable)? {
                CachedRead::OnDisk => return Ok(CursorEnd::OnDisk(Load::Returned(offset, failed))),
                // Trimmed meanwhile.
                CachedRead::Read(None) => {}
                CachedRead::Read(Some(record)) => {
                    if take(&record.view(), taken(offset, failed)).is_break() {
                        return Ok(CursorEnd::Enough);
                    }
                }
            }
        }
        loop {
            while let Some((batch, place)) = self.batches.front_mut() {
                let mut records = batch.records_from(*place);
                while let Some(record) = records.next() {
                    let record = record.map_err(|source| undecodable(&*self.partition, source))?;
                    *place = records.cursor();
                    if take(&record, taken(record.offset, 0)).is_break() {
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
    /// Hands records to `take` until that breaks off, which it does behind the last one that it wants.
    pub(super) fn pull(&self, take: impl FnMut(&RecordView<'_>, Taken) -> ControlFlow<()>) -> Pulled {
        self.queue.pull(take)
    }

    /// Gives back records that were not accepted. With `has_failed` that counts as a failed delivery.
    pub(super) fn give_back(&self, records: impl IntoIterator<Item = Taken>, has_failed: bool) {
        let mut state = self.queue.state.lock();
        for record in records {
            if let Some(cursor) = state.partitions.get_mut(record.partition as usize) {
                cursor.returned.insert(record.offset.0, record.failed_deliveries + u32::from(has_failed));
            }
        }
        state.ring();
    }
}
