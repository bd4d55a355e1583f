//! What is kept of a query that outlives the process: itself, what its records have come to, and up to which of them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_types::{Epoch, NameError, PartitionId, TenantId, TopicId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::keeping::{Addressee, Places, Reached};
use crate::live::Live;
use crate::outbox::{Contents, Counts, Delivery};
use crate::passage::Gone;
use crate::progress::Reading;
use crate::rows::{RowBatch, Rows};
use crate::trail::{KeptTrail, Trail};
use crate::{Meta, QueryId, QueryRequest, WindowMeta, WindowResult};

/// The form of the records, their first byte; the rest is JSON.
const VERSION: u8 = 1;
/// What a key begins with; the query's id follows.
const KIND: u8 = b'q';

/// A query as it was at one moment. A record of the state topic (key: [`Kept::key`]); it is overwritten as the query goes on
/// and deleted when its client has got its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) id: QueryId,
    pub(crate) tenant: String,
    pub(crate) request: QueryRequest,
    /// The unique id of its stream's topic, 32 hexadecimal digits.
    topic: String,
    pub(crate) received_ms: i64,
    /// When it ends; `None` is never.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) counts: Counts,
    /// Of one whose records are not rows at once.
    pub(crate) states: Option<KeptStates>,
    places: Vec<Place>,
    /// What no client has taken yet.
    waiting: Vec<Waiting>,
    /// If it has ended: what is told then.
    pub(crate) end: Option<Meta>,
    /// If its results go into a topic: for whom, and how many are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addressed: Option<Addressed>,
    /// Otherwise: the numbers of what waits, and how far that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trail: Option<KeptTrail>,
}

/// Results on their way into a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Addressed {
    #[serde(flatten)]
    pub(crate) to: Addressee,
    #[serde(flatten)]
    pub(crate) gone: Gone,
}

/// What its records have come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct KeptStates {
    /// How many windows have been given.
    pub(crate) given: u64,
    /// What goes on beyond a window.
    #[serde(with = "optional_bytes")]
    pub(crate) whole: Option<Vec<u8>>,
    /// What the window that is running has come to, in parts.
    #[serde(with = "list_of_bytes")]
    pub(crate) parts: Vec<Vec<u8>>,
}

/// How far it has come in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    partition: u32,
    epoch: u32,
    first: u64,
    #[serde(flatten)]
    counted: Reading,
}

/// A result on its way to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Waiting {
    /// The JSON of each row.
    rows: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowMeta>,
}

impl Kept {
    /// What a query is now, all of it at one moment.
    pub(crate) fn of(query: &Live, request: &QueryRequest, to: Option<&Addressee>, places: &Places) -> Self {
        let place = |(partition, reached): (&PartitionId, &Reached)| Place {
            partition: partition.0,
            epoch: reached.epoch.0,
            first: reached.first,
            counted: reached.counted,
        };
        query.outbox.look(|Contents { counts, waiting, end, passage, trail }| Self {
            id: query.id,
            tenant: query.tenant().to_string(),
            request: request.clone(),
            topic: query.stream.topic.id.to_string(),
            received_ms: query.received_ms,
            deadline_ms: query.deadline_ms(),
            counts,
            states: query.running.as_ref().filter(|_| end.is_none()).map(|running| running.keep()),
            places: places.iter().map(place).collect(),
            waiting: waiting.iter().filter_map(Waiting::of).collect(),
            end: end.cloned(),
            addressed: to.zip(passage).map(|(to, passage)| Addressed { to: to.clone(), gone: passage.gone }),
            trail: trail.map(Trail::keep),
        })
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

    /// Whether it is of this topic, rather than of another with the same name.
    pub(crate) fn is_of(&self, topic: TopicId) -> bool {
        self.topic == topic.to_string()
    }

    pub(crate) fn tenant(&self) -> Result<TenantId, NameError> {
        TenantId::new(&self.tenant)
    }

    pub(crate) fn places(&self) -> Places {
        let place = |place: &Place| {
            let reached = Reached { epoch: Epoch(place.epoch), first: place.first, counted: place.counted };
            (PartitionId(place.partition), reached)
        };
        self.places.iter().map(place).collect()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Delivery> {
        self.waiting.iter().map(Waiting::delivery)
    }

    /// How long it had run when it is `now_ms`.
    pub(crate) fn ran_for(&self, now_ms: i64) -> Duration {
        Duration::from_millis(u64::try_from(now_ms.saturating_sub(self.received_ms)).unwrap_or(0))
    }
}

impl Waiting {
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

/// Bytes in base64.
fn bytes<'de, D: Deserializer<'de>>(text: &str) -> Result<Vec<u8>, D::Error> {
    BASE64.decode(text).map_err(D::Error::custom)
}

mod optional_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| BASE64.encode(bytes)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| bytes::<D>(&text)).transpose()
    }
}

mod list_of_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(list: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|bytes| BASE64.encode(bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<String>::deserialize(from)?.iter().map(|text| bytes::<D>(text)).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// Records as version 1 has written them: one that runs, one that has ended, one that delivers into a topic, one whose
    /// results have numbers.
    const VERSION_1: [&str; 4] = [RUNNING, ENDED, INTO_TOPIC, NUMBERED];
    const NUMBERED: &str = include_str!("../tests/fixtures/kept-v1-numbered.json");
    const INTO_TOPIC: &str = include_str!("../tests/fixtures/kept-v1-into-topic.json");
    const RUNNING: &str = include_str!("../tests/fixtures/kept-v1-running.json");
    const ENDED: &str = include_str!("../tests/fixtures/kept-v1-ended.json");

    #[test]
    fn records_of_every_version_are_read() {
        for json in VERSION_1 {
            let value = [&[1], json.trim_end().as_bytes()].concat();
            let kept = Kept::decode(b"q0b1f", &value).unwrap().unwrap();
            assert_eq!(String::from_utf8_lossy(&kept.encode()), String::from_utf8_lossy(&value));
            assert_eq!(kept.places()[&PartitionId(2)].counted.next, 120);
            let trail = kept.trail.as_ref().map(|trail| Trail::resume(Some(trail), &[8], Epoch(9)).stamp());
            let id = |id: &str| id.parse().unwrap();
            assert_eq!(trail, (json == NUMBERED).then(|| (id("9-0"), id("6-12"), 1)));
            if json == INTO_TOPIC {
                let Addressed { to, gone } = kept.addressed.unwrap();
                assert_eq!((&*to.client, to.correlation.as_deref()), ("dashboard", Some("c-1")));
                assert_eq!((gone.opening, gone.records), (true, 14));
            }
            assert!(
                kept.end.is_some() || kept.states.is_some_and(|states| states.given == 3 && states.parts.len() == 1)
            );
        }
    }

    #[test]
    fn what_is_damaged_of_a_later_version_or_of_another_kind_is_told_apart() {
        assert!(Kept::decode(b"x1", b"anything").is_none());
        for (value, why) in [(&b""[..], "empty"), (b"\x02{}", "version 2"), (b"\x01{\"id\":", "EOF")] {
            let refused = Kept::decode(b"q1", value).unwrap().unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
