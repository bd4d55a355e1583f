//! The stored state of a kept query: its request, its aggregates and its position in each partition.

use std::time::Duration;

use millstream_types::{Epoch, NameError, PartitionId, StateTopic, TenantId, TopicId};
use serde::{Deserialize, Serialize};

use crate::durable_state::{PartitionPositions, PartitionProgress, ResultRecipient};
use crate::live::LiveQuery;
use crate::outbox::{Delivery, OutboxSnapshot, ResultCounts};
use crate::progress::ProgressCounters;
use crate::resume_buffer::{ResumeBuffer, StoredResumeBuffer};
use crate::rows::{RowBatch, Rows};
use crate::sink_progress::SinkOffset;
use crate::window::AggregateCheckpoint;
use crate::{Meta, QueryId, QueryRequest, WindowMeta, WindowResult};

/// The form of the records, their first byte; the rest is JSON.
pub(crate) const VERSION: u8 = StateTopic::Queries.version();
/// The prefix of a key; the query's id follows.
const KIND: u8 = b'q';

/// A consistent checkpoint of one query. It is a record of the state topic (key: [`Checkpoint::key`]), which is overwritten
/// while the query runs and deleted when the client has read its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) id: QueryId,
    pub(crate) tenant: String,
    pub(crate) request: QueryRequest,
    /// The name of the credentials that asked it; `None` of older versions, or without a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) submitted_by: Option<String>,
    /// The unique id of its stream's topic, 32 hexadecimal digits.
    topic: String,
    pub(crate) received_ms: i64,
    /// When it ends; `None` is never.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) counts: ResultCounts,
    /// The state of a query that aggregates records.
    pub(crate) states: Option<AggregateCheckpoint>,
    places: Vec<PartitionPosition>,
    /// Results that no client has taken yet.
    waiting: Vec<StoredResult>,
    /// The final meta, if the query has ended.
    pub(crate) end: Option<Meta>,
    /// The recipient and the progress, if the results go into a topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addressed: Option<SinkCheckpoint>,
    /// The numbers of the waiting results, and the last one sent, if the results go to a client.
    #[serde(rename = "trail", default, skip_serializing_if = "Option::is_none")]
    pub(crate) resume_buffer: Option<StoredResumeBuffer>,
}

/// Results on their way into a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SinkCheckpoint {
    #[serde(flatten)]
    pub(crate) to: ResultRecipient,
    #[serde(flatten)]
    pub(crate) gone: SinkOffset,
}

/// The position of a query in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartitionPosition {
    partition: u32,
    epoch: u32,
    first: u64,
    #[serde(flatten)]
    counted: ProgressCounters,
}

/// A result on its way to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredResult {
    /// The JSON of each row.
    rows: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowMeta>,
}

impl Checkpoint {
    /// A consistent checkpoint of a live query.
    pub(crate) fn of(
        query: &LiveQuery,
        request: &QueryRequest,
        to: Option<&ResultRecipient>,
        places: &PartitionPositions,
    ) -> Self {
        let place = |(partition, reached): (&PartitionId, &PartitionProgress)| PartitionPosition {
            partition: partition.0,
            epoch: reached.epoch.0,
            first: reached.first,
            counted: reached.counted,
        };
        query.outbox.look(|OutboxSnapshot { counts, waiting, end, sink_progress, resume_buffer }| Self {
            id: query.id,
            tenant: query.tenant().to_string(),
            request: request.clone(),
            submitted_by: request.submitted_by.clone(),
            topic: query.stream.topic.id.to_string(),
            received_ms: query.received_ms,
            deadline_ms: query.deadline_ms(),
            counts,
            states: query.running.as_ref().filter(|_| end.is_none()).map(|running| running.keep()),
            places: places.iter().map(place).collect(),
            waiting: waiting.iter().filter_map(StoredResult::of).collect(),
            end: end.cloned(),
            addressed: to
                .zip(sink_progress)
                .map(|(to, sink_progress)| SinkCheckpoint { to: to.clone(), gone: sink_progress.gone }),
            resume_buffer: resume_buffer.map(ResumeBuffer::keep),
        })
    }

    /// The life of the process that has numbered the last result; `None` if results have no numbers.
    pub(crate) fn life(&self) -> Option<u32> {
        self.resume_buffer.as_ref().map(StoredResumeBuffer::life)
    }

    pub(crate) fn key(id: QueryId) -> Vec<u8> {
        let mut key = vec![KIND];
        key.extend_from_slice(id.to_string().as_bytes());
        key
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        serde_json::to_writer(&mut value, self).expect("writing to memory cannot fail");
        value
    }

    /// Reads a record; `None` is of another kind.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<Result<Self, String>> {
        key.strip_prefix(&[KIND])?;
        Some(match value.split_first() {
            Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Some((version, _)) => Err(format!("version {version} is not known")),
            None => Err("it is empty".to_owned()),
        })
    }

    /// True if the query reads this topic, and not an earlier one of the same name.
    pub(crate) fn is_of(&self, topic: TopicId) -> bool {
        self.topic == topic.to_string()
    }

    pub(crate) fn tenant(&self) -> Result<TenantId, NameError> {
        TenantId::new(&self.tenant)
    }

    pub(crate) fn places(&self) -> PartitionPositions {
        let place = |place: &PartitionPosition| {
            let reached = PartitionProgress { epoch: Epoch(place.epoch), first: place.first, counted: place.counted };
            (PartitionId(place.partition), reached)
        };
        self.places.iter().map(place).collect()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Delivery> {
        self.waiting.iter().map(StoredResult::delivery)
    }

    /// The time that the query has run at `now_ms`.
    pub(crate) fn ran_for(&self, now_ms: i64) -> Duration {
        Duration::from_millis(u64::try_from(now_ms.saturating_sub(self.received_ms)).unwrap_or(0))
    }
}

impl StoredResult {
    fn of(delivery: &Delivery) -> Option<Self> {
        let (rows, window) = match delivery {
            Delivery::Rows(rows) => (rows, None),
            Delivery::Window(window) => (&window.rows, Some(window.meta.clone())),
            Delivery::End(_) => return None,
        };
        Some(Self { rows: rows.rows().map(|row| String::from_utf8_lossy(row).into_owned()).collect(), window })
    }

    fn delivery(&self) -> Delivery {
        let mut rows = Rows::default();
        self.rows.iter().for_each(|row| rows.push(|out| out.extend_from_slice(row.as_bytes())));
        let rows = RowBatch::from(rows);
        match self.window.clone() {
            Some(meta) => Delivery::Window(Box::new(WindowResult { rows, meta })),
            None => Delivery::Rows(rows),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use millstream_columns::{
        AggregateShape, AggregateState, FigureKind, FigureOf, KeyWindows, SketchSizes, Value, WindowExtent,
        WindowShape, read_key,
    };

    use super::*;

    /// Records that version 1 has written: a running query, an ended one, one that delivers into a topic,
    /// and one with numbered results.
    const VERSION_1: [&str; 4] = [RUNNING, ENDED, INTO_TOPIC, NUMBERED];
    const NUMBERED: &str = include_str!("../tests/fixtures/kept-v1-numbered.json");
    const INTO_TOPIC: &str = include_str!("../tests/fixtures/kept-v1-into-topic.json");
    const RUNNING: &str = include_str!("../tests/fixtures/kept-v1-running.json");
    const ENDED: &str = include_str!("../tests/fixtures/kept-v1-ended.json");

    #[test]
    fn records_of_every_version_are_read() {
        for json in VERSION_1 {
            let value = [&[1], json.trim_end().as_bytes()].concat();
            let kept = Checkpoint::decode(b"q0b1f", &value).unwrap().unwrap();
            // An empty list of errors is no longer written.
            let rewritten = String::from_utf8_lossy(&value).replace(r#","errors":[]"#, "");
            assert_eq!(String::from_utf8_lossy(&kept.encode()), rewritten);
            assert_eq!(kept.places()[&PartitionId(2)].counted.next, 120);
            let resume_buffer = kept
                .resume_buffer
                .as_ref()
                .map(|resume_buffer| ResumeBuffer::resume(Some(resume_buffer), &[8], 9).stamp());
            let id = |id: &str| id.parse().unwrap();
            assert_eq!(resume_buffer, (json == NUMBERED).then(|| (id("9-0"), id("6-12"), 1)));
            if json == INTO_TOPIC {
                let SinkCheckpoint { to, gone } = kept.addressed.unwrap();
                assert_eq!((&*to.client, to.correlation.as_deref()), ("dashboard", Some("c-1")));
                assert_eq!((gone.opening, gone.records), (true, 14));
            }
            assert!(
                kept.end.is_some() || kept.states.is_some_and(|states| states.given == 3 && states.parts.len() == 1)
            );
        }
    }

    #[test]
    fn windows_by_event_time_are_read_as_they_were_written() {
        let json = include_str!("../tests/fixtures/kept-v1-sessions.json").trim_end();
        let value = [&[1], json.as_bytes()].concat();
        let kept = Checkpoint::decode(b"q0b1f", &value).unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&kept.encode()), String::from_utf8_lossy(&value));
        let placed = kept.states.unwrap().placed.unwrap();
        assert_eq!((placed.reached_ms, placed.late, placed.partitions), (3, 1, vec![(2, 3)]));
        assert_eq!(read_key(&placed.windows[0]).unwrap(), [Value::Text("b".into())]);
        let count = FigureOf { name: "COUNT(*)".to_owned(), kind: FigureKind::Count, inputs: 1..1 };
        let (shape, sizes) = (AggregateShape::Groups { keys: 0, figures: [count].into() }, SketchSizes::default());
        let read = |state: &[u8]| AggregateState::read(&shape, sizes, state).ok();
        let mut windows = KeyWindows::read(&placed.windows[1], read).unwrap();
        let (fresh, mut given) = (|| AggregateState::new(&shape, sizes), Vec::new());
        let give = |extent, state: &AggregateState| given.push((extent, state.rows()));
        windows.give_due(&WindowShape::Session { gap_ms: 10 }, 14, fresh, give);
        assert_eq!(given, [(WindowExtent { start_ms: 3, end_ms: 3 }, vec![vec![Value::Integer(1)]])]);
    }

    #[test]
    fn damaged_newer_and_foreign_records_are_told_apart() {
        assert!(Checkpoint::decode(b"x1", b"anything").is_none());
        for (value, why) in [(&b""[..], "empty"), (b"\x02{}", "version 2"), (b"\x01{\"id\":", "EOF")] {
            let refused = Checkpoint::decode(b"q1", value).unwrap().unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
