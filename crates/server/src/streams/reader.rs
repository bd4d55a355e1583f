//! Reads a topic's partitions in turn, up to their stable offsets, in bounded steps. It runs on blocking threads,
//! because it waits for disks.

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_log::{Bell, Error, Log, Partition, Topic, UpTo};
use millstream_types::{
    BatchLimits, Offset, PartitionOffsets, Place, RecordBatch, RecordView, TAIL_PARTITIONS_MAX, TopicPartition,
    WallClock,
};
use serde_json::{Value, json};

use super::filter::{RecordFilter, is_perishable};
use super::render;

/// Size of rendered records after which a step ends.
pub(super) const STEP_BYTES: usize = 128 << 10;
/// Bytes of one read from the log.
const READ_BYTES: usize = 128 << 10;
/// Records skipped before the reader reports its position.
const PASSED_MAX: u64 = 10_000;

/// The request of a read.
#[derive(Debug, Clone)]
pub(super) struct ReadRequest {
    pub(super) from: Place,
    pub(super) until: Option<Place>,
    /// The partitions to read; empty means all, including ones added later.
    pub(super) partitions: Vec<u32>,
    pub(super) limit: Option<u64>,
    pub(super) filter: RecordFilter,
    pub(super) positions: Positions,
}

/// The items that carry a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// Every item, so that the client can continue after any of them.
    OfEachItem,
    /// Only the final position of the reader.
    AtTheEnd,
}

/// A reader at a position in a topic.
pub(super) struct Reader {
    partitions: Vec<Tracked>,
    /// Set if new partitions are read, too.
    growing: Option<Growing>,
    position: PartitionOffsets,
    /// Index of the partition to read next.
    turn: usize,
    left: Option<u64>,
    filter: RecordFilter,
    positions: Positions,
    /// The clock for expiry, if records of the topic can expire.
    wall: Option<Arc<dyn WallClock>>,
    /// Records skipped since the last returned one.
    passed: u64,
}

struct Tracked {
    number: u32,
    log: Arc<dyn Partition>,
    next: Offset,
    until: Option<Offset>,
}

/// A topic whose partitions are all read, including new ones.
struct Growing {
    log: Arc<dyn Log>,
    topic: Arc<Topic>,
    bell: Arc<Bell>,
}

/// An item for the client.
#[derive(Debug)]
pub(super) struct TailItem {
    pub(super) kind: &'static str,
    /// The position after this item; empty if only the reader reports it.
    pub(super) position: String,
    pub(super) json: String,
}

/// The result of one step.
#[derive(Debug, Default)]
pub(super) struct ReadStep {
    pub(super) items: Vec<TailItem>,
    /// True if the read is complete.
    pub(super) done: bool,
    /// Bytes read, including skipped records; 0 means that the reader has reached the stable offsets.
    pub(super) read_bytes: usize,
    bytes: usize,
}

/// A reason that a reader cannot start.
#[derive(Debug)]
pub(super) enum Refused {
    /// The request and the rule that it violates.
    Wanted {
        name: &'static str,
        value: String,
        rule: String,
    },
    Log(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

impl Reader {
    /// Opens a reader at the requested position.
    pub(super) fn open(
        log: &dyn Log,
        topic: &Topic,
        wanted: &ReadRequest,
        wall: &Arc<dyn WallClock>,
    ) -> Result<Self, Refused> {
        let mut reader = Self {
            partitions: Vec::new(),
            growing: None,
            position: PartitionOffsets::default(),
            turn: 0,
            left: wanted.limit,
            filter: wanted.filter.clone(),
            positions: wanted.positions,
            wall: is_perishable(&topic.name).then(|| Arc::clone(wall)),
            passed: 0,
        };
        for number in numbers(topic, wanted)? {
            let partition = log.partition(&TopicPartition::new(topic.name.clone(), number))?;
            let next = offset(partition.as_ref(), number, "from", &wanted.from)?;
            let until = wanted.until.as_ref().map(|place| offset(partition.as_ref(), number, "until", place));
            reader.position.0.insert(number, next);
            reader.partitions.push(Tracked { number, log: partition, next, until: until.transpose()? });
        }
        Ok(reader)
    }

    /// Rings `bell` when there may be more to read, also for new partitions if `wanted` includes them.
    pub(super) fn watch(&mut self, bell: &Arc<Bell>, wanted: &ReadRequest, topic: Arc<Topic>, log: Arc<dyn Log>) {
        self.partitions.iter().for_each(|partition| partition.log.watch(bell));
        if wanted.partitions.is_empty() && wanted.until.is_none() {
            log.watch_topics(bell);
            self.growing = Some(Growing { log, topic, bell: Arc::clone(bell) });
        }
    }

    /// Adds partitions that are new in the topic, from their first offset, because all of their records are new.
    fn grow(&mut self) -> Result<(), Error> {
        let Some(Growing { log, topic, bell }) = &self.growing else { return Ok(()) };
        let current = log.topic(&topic.name).filter(|current| current.id == topic.id);
        let count = current.map_or(0, |current| current.config.partitions).min(TAIL_PARTITIONS_MAX);
        for number in self.partitions.len() as u32..count {
            let partition = log.partition(&TopicPartition::new(topic.name.clone(), number))?;
            partition.watch(bell);
            let next = partition.offsets().first;
            self.position.0.insert(number, next);
            self.partitions.push(Tracked { number, log: partition, next, until: None });
        }
        Ok(())
    }

    pub(super) fn position(&self) -> String {
        self.position.to_string()
    }

    /// Reads on, each partition in turn. A step may return no items although there is more to read, if
    /// the filter drops all records.
    pub(super) fn step(&mut self) -> Result<ReadStep, Error> {
        self.grow()?;
        let mut step = ReadStep { done: self.is_done(), ..ReadStep::default() };
        for _ in 0..self.partitions.len() {
            if step.done || step.bytes >= STEP_BYTES {
                break;
            }
            let index = self.turn % self.partitions.len();
            self.turn = index + 1;
            self.read(index, &mut step)?;
            step.done = self.is_done();
        }
        if self.passed >= PASSED_MAX {
            self.give(&mut step, "position", "{}".to_owned());
        }
        Ok(step)
    }

    fn is_done(&self) -> bool {
        let ended = |partition: &Tracked| partition.until.is_some_and(|until| partition.next >= until);
        self.left == Some(0) || self.partitions.iter().all(ended)
    }

    fn read(&mut self, index: usize, step: &mut ReadStep) -> Result<(), Error> {
        let partition = &self.partitions[index];
        let from = partition.next;
        if partition.until.is_some_and(|until| from >= until) {
            return Ok(());
        }
        let stable = partition.log.offsets().stable;
        match partition.log.read(from, READ_BYTES, UpTo::Stable) {
            Ok(batches) if batches.is_empty() => {
                self.advance(index, stable.max(from));
                Ok(())
            }
            Ok(batches) => {
                step.read_bytes += batches.iter().map(RecordBatch::size_bytes).sum::<usize>();
                batches.iter().try_for_each(|batch| self.take(index, batch, step))
            }
            Err(Error::Trimmed { wanted, oldest, .. }) => {
                let gap = json!({"partition": partition.number, "wanted": wanted.0, "oldest": oldest.0});
                self.advance(index, oldest);
                self.give(step, "gap", gap.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Adds the matching records of a batch while the step has room.
    fn take(&mut self, index: usize, batch: &RecordBatch, step: &mut ReadStep) -> Result<(), Error> {
        if step.bytes >= STEP_BYTES || self.left == Some(0) {
            return Ok(());
        }
        if batch.is_control() {
            self.advance(index, batch.next_offset());
            return Ok(());
        }
        let id = self.partitions[index].log.id().clone();
        let undecodable = |source| Error::Batch { partition: id.clone(), source };
        let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
        let (number, until) = (self.partitions[index].number, self.partitions[index].until);
        for record in batch.records() {
            let record = record.map_err(undecodable)?;
            if record.offset < self.partitions[index].next {
                continue;
            }
            if step.bytes >= STEP_BYTES || self.left == Some(0) {
                return Ok(());
            }
            if let Some(until) = until.filter(|until| record.offset >= *until) {
                self.advance(index, until);
                return Ok(());
            }
            self.advance(index, record.offset.next());
            if self.wants(&record) {
                self.left = self.left.map(|left| left - 1);
                self.give(step, "record", render::record(number, &record));
            } else {
                self.passed += 1;
            }
        }
        // Set after all records were returned; the batch may end with an offset gap.
        let next = batch.next_offset().max(self.partitions[index].next);
        self.advance(index, next);
        Ok(())
    }

    fn wants(&self, record: &RecordView<'_>) -> bool {
        self.filter.wants(record) && self.wall.as_ref().is_none_or(|wall| !record.is_void(wall.now_ms()))
    }

    fn advance(&mut self, index: usize, next: Offset) {
        let partition = &mut self.partitions[index];
        partition.next = next;
        self.position.0.insert(partition.number, next);
    }

    fn give(&mut self, step: &mut ReadStep, kind: &'static str, json: String) {
        self.passed = 0;
        let position = match self.positions {
            Positions::OfEachItem => self.position.to_string(),
            Positions::AtTheEnd => String::new(),
        };
        step.bytes += position.len() + json.len();
        step.items.push(TailItem { kind, position, json });
    }
}

/// Returns the numbers of the partitions to read.
fn numbers(topic: &Topic, wanted: &ReadRequest) -> Result<Vec<u32>, Refused> {
    let count = topic.config.partitions;
    let numbers: Vec<u32> = match &wanted.partitions[..] {
        [] => (0..count).collect(),
        given => BTreeSet::from_iter(given.iter().copied()).into_iter().collect(),
    };
    let named = match &wanted.from {
        Place::At(position) => position.0.keys().copied().collect(),
        _ => Vec::new(),
    };
    let refuse = |name, value: &dyn ToString, rule| Err(Refused::Wanted { name, value: value.to_string(), rule });
    if let Some(wrong) = numbers.iter().chain(&named).find(|number| **number >= count) {
        return refuse("partition", wrong, format!("topic '{}' has partitions 0 to {}", topic.name, count - 1));
    }
    if wanted.positions == Positions::OfEachItem && numbers.len() > TAIL_PARTITIONS_MAX as usize {
        let rule = format!(
            "one tail reads at most {TAIL_PARTITIONS_MAX} partitions: open several, the first with partition=0-{} (--partition 0-{} in the terminal)",
            TAIL_PARTITIONS_MAX - 1,
            TAIL_PARTITIONS_MAX - 1,
        );
        return refuse("partition", &format!("{} partitions", numbers.len()), rule);
    }
    Ok(numbers)
}

/// Returns the offset of `place` in a partition.
fn offset(partition: &dyn Partition, number: u32, name: &'static str, place: &Place) -> Result<Offset, Refused> {
    let ends = partition.offsets();
    match place {
        Place::Earliest => Ok(ends.first),
        Place::Latest => Ok(ends.stable),
        Place::Time(ms) => Ok(partition.offset_at(*ms)?.unwrap_or(ends.stable).min(ends.stable)),
        Place::At(position) => {
            let refuse = |rule| Refused::Wanted { name, value: position.to_string(), rule };
            // The partition may be newer than the position.
            let offset = position.0.get(&number).copied().unwrap_or(ends.first);
            if offset > ends.tail {
                let rule = format!("partition {number} ends at {}; the topic may have been created anew", ends.tail);
                return Err(refuse(rule));
            }
            Ok(offset)
        }
    }
}

impl TailItem {
    /// Renders the item as a message with its kind and position.
    pub(super) fn message(&self) -> String {
        let head = json!({"event": self.kind, "position": self.position}).to_string();
        match (head.strip_suffix('}'), self.json.strip_prefix('{')) {
            (Some(head), Some(rest)) if rest != "}" => format!("{head},{rest}"),
            _ => head,
        }
    }

    /// The last item of a tail.
    pub(super) fn end(position: String) -> Self {
        Self { kind: "end", position, json: json!({"cause": "all that was asked for has been sent"}).to_string() }
    }

    /// The item of a tail that failed.
    pub(super) fn failed(position: String, cause: String) -> Self {
        Self { kind: "failed", position, json: Value::from_iter([("cause", cause)]).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use millstream_log::{AckLevel, Done, Embedded, LogConfig, SystemFiles, TopicConfig};
    use millstream_types::{Record, SystemClock, TenantId, TopicName};

    use super::*;

    fn append(log: &dyn Log, name: &TopicName, partition: u32) {
        let partition = log.partition(&TopicPartition::new(name.clone(), partition)).unwrap();
        partition
            .append(&[Record { value: Some(b"1"), ..Record::default() }], AckLevel::Memory, Done::ignore())
            .unwrap();
    }

    /// Returns the positions after the first `count` items of a reader.
    async fn positions(reader: &mut Reader, bell: &Bell, count: usize) -> Vec<String> {
        let mut positions = Vec::new();
        while positions.len() < count {
            let step = reader.step().unwrap();
            if step.items.is_empty() {
                bell.rung().await;
            }
            positions.extend(step.items.into_iter().map(|item| item.position));
        }
        positions
    }

    #[tokio::test]
    async fn added_partitions_are_read_from_their_beginning_by_current_and_returning_readers() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let files = Arc::new(SystemFiles);
        let log: Arc<dyn Log> = Embedded::open(
            LogConfig { dir: dir.path().join("log"), ..LogConfig::default() },
            files,
            clock.clone(),
            clock.clone(),
        )
        .unwrap();
        let wall: Arc<dyn WallClock> = clock;
        let name = TopicName::user("grow", &TenantId::default()).unwrap();
        let topic = log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
        let wanted = |from: &str, partitions| ReadRequest {
            from: from.parse().unwrap(),
            until: None,
            partitions,
            limit: None,
            filter: RecordFilter::default(),
            positions: Positions::OfEachItem,
        };
        let open = |wanted: &ReadRequest| {
            let bell = Arc::new(Bell::of_consumer());
            let mut reader = Reader::open(&*log, &log.topic(&name).unwrap(), wanted, &wall).unwrap();
            reader.watch(&bell, wanted, topic.clone(), log.clone());
            (reader, bell)
        };
        let (mut all, bell) = open(&wanted("latest", Vec::new()));
        let (mut first, _) = open(&wanted("earliest", vec![0]));
        append(&*log, &name, 0);
        assert_eq!(positions(&mut all, &bell, 1).await, ["0:1"]);
        log.add_partitions(&name, 3).unwrap();
        append(&*log, &name, 2);
        assert_eq!(positions(&mut all, &bell, 1).await, ["0:1,1:0,2:1"]);
        let (mut back, bell) = open(&wanted("0:1", Vec::new()));
        assert_eq!(positions(&mut back, &bell, 1).await, ["0:1,1:0,2:1"]);
        assert_eq!(first.step().unwrap().items.len(), 1);
        assert_eq!(first.position(), "0:1", "who wants some partitions gets no others");
    }
}
