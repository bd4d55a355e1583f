//! Reads the partitions of a bucket in turn, in bounded steps. It may block on the disk, so it
//! runs on the reading threads.

use std::sync::Arc;

use millstream_http::Problem;
use millstream_log::{Bell, Partition, UpTo};
use millstream_types::{Offset, PartitionOffsets, RecordBatch};
use serde_json::json;

use crate::Error;
use crate::http::key_line::{KeyLine, VALUE_SHOWN_MAX_BYTES};
use crate::http::problems::{bad_parameter, problem};
use crate::http::records::{change, readable, undecodable};

/// Bytes of events after which a step ends.
const STEP_BYTES: usize = 128 << 10;
/// Bytes of one read from the log.
const READ_BYTES: usize = 128 << 10;
/// Records passed over before the position is told.
const PASSED_OVER_MAX: u64 = 10_000;

/// The place at which a watch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    Earliest,
    Latest,
    /// Writes at this time or later: milliseconds since 1970-01-01T00:00:00Z.
    Time(i64),
    At(PartitionOffsets),
}

/// An event for the client.
#[derive(Debug)]
pub(super) struct WatchEvent {
    pub(super) kind: &'static str,
    /// The `id` of the event: the position after it.
    pub(super) position: String,
    pub(super) json: String,
}

/// The events that one step has read.
#[derive(Debug, Default)]
pub(super) struct WatchBatch {
    pub(super) items: Vec<WatchEvent>,
    /// `false` if there was nothing to read.
    pub(super) has_read: bool,
    bytes: usize,
}

/// The reason why a watch cannot begin.
#[derive(Debug)]
pub(super) enum Refused {
    /// No partition, or no offset of it, is there.
    Position {
        value: String,
        rule: &'static str,
    },
    Store(Error),
}

impl From<millstream_log::Error> for Refused {
    fn from(error: millstream_log::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Refused {
    pub(super) fn problem(&self) -> Problem {
        match self {
            Self::Position { value, rule } => bad_parameter("from", value, rule)
                .remedy("the bucket may have been made anew: begin at 'earliest' or 'latest'"),
            Self::Store(error) => problem(error),
        }
    }
}

/// A reader at a position of a bucket's topic.
pub(super) struct Follower {
    partitions: Vec<(Arc<dyn Partition>, Offset)>,
    prefix: Vec<u8>,
    with_values: bool,
    /// The partition to read next.
    turn: usize,
    passed_over: u64,
}

impl Follower {
    /// Opens a reader. It rings `bell` when there may be more to read.
    pub(super) fn open(
        partitions: &[Arc<dyn Partition>],
        from: &Start,
        prefix: Vec<u8>,
        with_values: bool,
        bell: &Arc<Bell>,
    ) -> Result<Self, Refused> {
        if let Start::At(position) = from
            && let Some(number) = position.0.keys().find(|number| **number as usize >= partitions.len())
        {
            return Err(Refused::Position { value: number.to_string(), rule: "the bucket has no such partition" });
        }
        let at_start = |(number, log): (usize, &Arc<dyn Partition>)| {
            log.watch(bell);
            let ends = log.offsets();
            let next = match from {
                Start::Earliest => ends.first,
                Start::Latest => ends.stable,
                Start::Time(ms) => log.offset_at(*ms)?.unwrap_or(ends.stable).min(ends.stable),
                Start::At(position) => position.0.get(&(number as u32)).copied().unwrap_or(ends.first),
            };
            if next > ends.tail {
                let rule = "the partition ends before this offset";
                return Err(Refused::Position { value: format!("{number}:{next}"), rule });
            }
            Ok((Arc::clone(log), next))
        };
        let partitions = partitions.iter().enumerate().map(at_start).collect::<Result<_, _>>()?;
        Ok(Self { partitions, prefix, with_values, turn: 0, passed_over: 0 })
    }

    pub(super) fn position(&self) -> String {
        let offsets = self.partitions.iter().enumerate().map(|(number, (_, next))| (number as u32, *next));
        PartitionOffsets(offsets.collect()).to_string()
    }

    /// Reads on, each partition in turn.
    pub(super) fn step(&mut self) -> Result<WatchBatch, Error> {
        let mut step = WatchBatch::default();
        for _ in 0..self.partitions.len() {
            if step.bytes >= STEP_BYTES {
                break;
            }
            let number = self.turn % self.partitions.len();
            self.turn = number + 1;
            self.read(number, &mut step)?;
        }
        if self.passed_over >= PASSED_OVER_MAX {
            self.give(&mut step, "position", "{}".to_owned());
        }
        Ok(step)
    }

    fn read(&mut self, number: usize, step: &mut WatchBatch) -> Result<(), Error> {
        let (log, from) = (Arc::clone(&self.partitions[number].0), self.partitions[number].1);
        let stable = log.offsets().stable;
        match log.read(from, READ_BYTES, UpTo::Stable) {
            Ok(batches) if batches.is_empty() => self.partitions[number].1 = stable.max(from),
            Ok(batches) => {
                step.has_read = true;
                batches.iter().try_for_each(|batch| self.take(number, &*log, batch, step))?;
            }
            Err(millstream_log::Error::Trimmed { wanted, oldest, .. }) => {
                step.has_read = true;
                self.partitions[number].1 = oldest;
                let gap = json!({"partition": number, "wanted": wanted.0, "oldest": oldest.0});
                self.give(step, "gap", gap.to_string());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes the records of a batch while the step has room.
    fn take(
        &mut self,
        number: usize,
        log: &dyn Partition,
        batch: &RecordBatch,
        step: &mut WatchBatch,
    ) -> Result<(), Error> {
        if step.bytes >= STEP_BYTES {
            return Ok(());
        }
        let readable = readable(log, batch)?;
        for record in readable.iter().flat_map(|batch| batch.records()) {
            let record = record.map_err(|source| undecodable(log, source))?;
            if record.offset < self.partitions[number].1 {
                continue;
            }
            if step.bytes >= STEP_BYTES {
                return Ok(());
            }
            self.partitions[number].1 = record.offset.next();
            if !record.key.is_some_and(|key| key.starts_with(&self.prefix)) {
                self.passed_over += 1;
                continue;
            }
            let (partition, offset) = (number as u32, record.offset.0);
            match change(log, &record)? {
                None => self.passed_over += 1,
                Some((key, None)) => {
                    let line = KeyLine::of_key(key).at(partition, offset).written_at(record.timestamp_ms);
                    self.give(step, "delete", line.json());
                }
                Some((key, Some(stored))) => {
                    let line = KeyLine::of_stored(key, &stored, None).at(partition, offset);
                    let line = if self.with_values { line.with_value(&stored, VALUE_SHOWN_MAX_BYTES) } else { line };
                    self.give(step, "put", line.json());
                }
            }
        }
        // The batch may end with offsets that have no records.
        self.partitions[number].1 = batch.next_offset().max(self.partitions[number].1);
        Ok(())
    }

    fn give(&mut self, step: &mut WatchBatch, kind: &'static str, json: String) {
        self.passed_over = 0;
        let position = self.position();
        step.bytes += position.len() + json.len();
        step.items.push(WatchEvent { kind, position, json });
    }
}
