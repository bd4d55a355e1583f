//! Copies the records of one partition.

use std::sync::{Arc, mpsc};

use millstream_log::{Appended, ClosedLog, Done, Error};
use millstream_types::{BatchLimits, Record};

use super::{MigrationStep, differs, stored};
use crate::core::Core;
use crate::offset_map::{OffsetMap, OffsetMapBuilder};
use crate::partition_state::PartitionState;

/// Bytes that wait for their acknowledgement.
const WAITING_MAX_BYTES: usize = 8 << 20;

type Answer = (usize, u64, Result<Appended, Error>);

/// Copies the records that are not there yet, and returns the map of all offsets.
pub(super) fn partition(
    core: &Arc<Core>,
    log: &ClosedLog,
    partition: &Arc<PartitionState>,
    told: &(dyn Fn(MigrationStep) + Sync),
) -> Result<OffsetMap, Error> {
    let closed = log.partition(&partition.id)?;
    let (core_of_task, of_task) = (Arc::clone(core), Arc::clone(partition));
    let there = core.wait(async move { stored::records(&core_of_task, &of_task).await })?;
    let undecodable = |source| Error::Batch { partition: partition.id.clone(), source };
    let mut map = OffsetMapBuilder::new(closed.first);
    let (sender, answers) = mpsc::channel::<Answer>();
    let mut waiting_bytes = 0;
    for batch in log.batches(&partition.id)? {
        let batch = batch?;
        let (bytes, before) = (batch.size_bytes(), map.records());
        let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
        let mut views = Vec::with_capacity(batch.record_count() as usize);
        for record in batch.records() {
            let record = record.map_err(undecodable)?;
            if record.offset >= closed.first {
                map.push(record.offset);
                views.extend((map.records() > there).then_some(record));
            }
        }
        let headers: Vec<Vec<_>> = views.iter().map(|view| view.headers().collect()).collect();
        let mut records = Vec::with_capacity(views.len());
        for (view, headers) in views.iter().zip(&headers) {
            let (timestamp_ms, key, value) = (view.timestamp_ms, view.key, view.value);
            records.push(Record { timestamp_ms, key, value, headers });
        }
        if !records.is_empty() {
            let (sender, size, last) = (sender.clone(), batch.size_bytes(), map.records() - 1);
            let done = Done::call(move |result| drop(sender.send((size, last, result))));
            partition.queue.lock().push(&records, core.config.batch_max_bytes, 0, done);
            core.outbox.ready(Arc::clone(partition));
            waiting_bytes += size;
        }
        told(MigrationStep::Copied { records: map.records() - before, bytes: bytes as u64 });
        while waiting_bytes > WAITING_MAX_BYTES {
            waiting_bytes -= acknowledged(core, partition, &answers)?;
        }
    }
    while waiting_bytes > 0 {
        waiting_bytes -= acknowledged(core, partition, &answers)?;
    }
    Ok(map.finish(closed.tail))
}

/// Waits for the next acknowledgement. Returns the bytes that wait no more.
fn acknowledged(core: &Core, partition: &PartitionState, answers: &mpsc::Receiver<Answer>) -> Result<usize, Error> {
    let (bytes, expected, result) = answers.recv().map_err(|_| Error::Stopped)?;
    let last = result?.last;
    match last.0 == expected {
        true => Ok(bytes),
        false => {
            let what = "another program has written to it, or an earlier run still did";
            Err(differs(core, &partition.id, &partition.topic.kafka_name, last, what))
        }
    }
}
