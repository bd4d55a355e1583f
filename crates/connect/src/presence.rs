//! Which devices listen for commands on a connection, told to applications by events without data: `ttd` -1 as long as
//! the connection lasts, 0 when it is over.
//!
//! A view of the state topic `_presence`. That a device listens is stored in one append with the event that says so, and
//! removed in one append with the event of its end; so what a start finds stored has lost its connection when the process
//! ended, and its event is made up for, once.
//!
//! | key | value |
//! | --- | --- |
//! | tenant, 0, device | version byte |

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millstream_types::{PartitionId, TenantId, TopicName, TopicPartition, header};
use millstream_view::{Answer, DecodeError, Draft, Encoded, Failure, Ground, Publish, View, Views, ViewsConfig};
use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;

use crate::outgoing::EMPTY_NOTIFICATION;
use crate::streams::{Stream, Streams};
use crate::{ConnectConfig, Error};

/// What the values are written in; a later version is refused.
const VERSION: u8 = 1;
/// Ends that are made up for in one go at start.
const ENDS_AT_ONCE: usize = 1_000;

type Name = (TenantId, Arc<str>);

/// Who listens.
pub(crate) struct Presence {
    views: Arc<Views<PresenceView>>,
    streams: Arc<Streams>,
    /// The adapter that they listen through.
    adapter: &'static str,
    here: Mutex<Here>,
}

#[derive(Default)]
struct Here {
    /// How many connections of each listen.
    counts: HashMap<Name, usize>,
    /// What owners have not answered yet: they leave undone what nobody waits for.
    open: VecDeque<Answer<PresenceView>>,
}

/// A device that listens, until this is dropped.
pub(crate) struct Present {
    presence: Arc<Presence>,
    name: Name,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.presence.leave(&self.name);
    }
}

impl Presence {
    /// Opens the view, and tells of those that the end of the last process has cut off. Blocks.
    pub(crate) fn open(
        ground: &Ground,
        config: &ConnectConfig,
        streams: &Arc<Streams>,
        adapter: &'static str,
    ) -> Result<Arc<Self>, Error> {
        let half = config.mqtt.presence_max_bytes / 2;
        let views = ViewsConfig {
            partitions: config.registry_partitions,
            dirty_max_bytes: half,
            inbox_max_bytes: half,
            inbox_setting: "connect.mqtt.presence_max_bytes",
            ..ViewsConfig::default()
        };
        let view = PresenceView { adapter };
        let views = Views::open(view, &TopicName::internal("_presence"), &views, ground).map_err(Error::Presence)?;
        let presence = Self { views, streams: streams.clone(), adapter, here: Mutex::default() };
        for number in 0..config.registry_partitions {
            let partition = PartitionId(number);
            let left: Vec<Name> = presence.views.snapshot(partition).state.iter().cloned().collect();
            for some in left.chunks(ENDS_AT_ONCE) {
                presence.make_up(partition, some).map_err(Error::Presence)?;
            }
        }
        Ok(Arc::new(presence))
    }

    fn make_up(&self, partition: PartitionId, left: &[Name]) -> Result<(), millstream_view::Error> {
        let answers: Vec<_> =
            left.iter().map(|name| self.views.submit(partition, self.change(name, false))).collect::<Result<_, _>>()?;
        answers
            .into_iter()
            .try_for_each(|answer| answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)))
    }

    /// `device` listens, as it can be handed commands already.
    pub(crate) fn enter(self: &Arc<Self>, tenant: &TenantId, device: &str) -> Present {
        let name = (tenant.clone(), Arc::from(device));
        let mut here = self.here.lock();
        let count = here.counts.entry(name.clone()).or_default();
        *count += 1;
        // Owners take what they are handed in the order in which this lock was held.
        if *count == 1 {
            self.tell(&mut here, &name, true);
        }
        drop(here);
        Present { presence: Arc::clone(self), name }
    }

    fn leave(&self, name: &Name) {
        let mut here = self.here.lock();
        let Some(count) = here.counts.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            here.counts.remove(name);
            self.tell(&mut here, name, false);
        }
    }

    fn tell(&self, here: &mut Here, name: &Name, is_here: bool) {
        const LOST: &str = "applications are not told whether a device listens";
        while let Some(answered) = here.open.front_mut().map(Answer::<PresenceView>::try_recv) {
            match answered {
                Err(TryRecvError::Empty) => break,
                Ok(Err(error)) => tracing::warn!(%error, adapter = self.adapter, "{LOST}"),
                Ok(Ok(())) | Err(TryRecvError::Closed) => {}
            }
            here.open.pop_front();
        }
        match self.views.submit(self.views.partition_of(&key(name)), self.change(name, is_here)) {
            Ok(answer) => here.open.push_back(answer),
            Err(error) => tracing::warn!(%error, adapter = self.adapter, device = %name.1, is_here, "{LOST}"),
        }
    }

    fn change(&self, name: &Name, is_here: bool) -> Told {
        let streams = self.streams.known(&name.0);
        let tell = streams.map(|streams| streams.partition(Stream::Event, &name.1).id().clone());
        Told { change: Change { name: name.clone(), is_here }, tell }
    }

    /// What of it has failed.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    /// Takes no more, answers what was taken, writes the checkpoint.
    pub(crate) fn stop(&self) {
        self.views.stop();
    }
}

struct PresenceView {
    adapter: &'static str,
}

/// A device listens, or does not any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    name: Name,
    is_here: bool,
}

/// A change, and where applications are told of it; nowhere if the tenant has gone.
struct Told {
    change: Change,
    tell: Option<TopicPartition>,
}

impl View for PresenceView {
    type State = imbl::HashSet<Name>;
    type Change = Change;
    type Command = Told;
    type Answer = ();
    const NAME: &'static str = "presence";

    fn decide(&self, draft: &mut Draft<'_, Self>, Told { change, tell }: Told) {
        if !change.is_here && !draft.state().contains(&change.name) {
            return;
        }
        if let Some(to) = tell {
            draft.publish(to, event(self.adapter, &change, draft.now_ms()));
        }
        draft.change(change);
    }

    fn owned_bytes(told: &Told) -> usize {
        told.change.name.0.as_str().len() + told.change.name.1.len()
    }

    fn apply(state: &mut Self::State, change: &Change) {
        if change.is_here {
            state.insert(change.name.clone());
        } else {
            state.remove(&change.name);
        }
    }

    fn encode(change: &Change, into: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        into.extend_from_slice(&key(&change.name));
        if !change.is_here {
            return Encoded::Tombstone;
        }
        value.push(VERSION);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        let names = std::str::from_utf8(key).ok().and_then(|names| names.split_once('\0'));
        let name = names.and_then(|(tenant, device)| Some((TenantId::new(tenant).ok()?, Arc::from(device))));
        let name = name.ok_or_else(|| DecodeError::new("a key that names no device of a tenant"))?;
        match value {
            None => Ok(Change { name, is_here: false }),
            Some([VERSION]) => Ok(Change { name, is_here: true }),
            Some(other) => {
                let version = other.first().copied().unwrap_or_default();
                Err(DecodeError::new(format!("a listening device, version {version}, known is {VERSION}")))
            }
        }
    }
}

fn key((tenant, device): &Name) -> Vec<u8> {
    [tenant.as_str().as_bytes(), b"\0", device.as_bytes()].concat()
}

/// It has no payload, so it counts as no volume.
fn event(adapter: &str, change: &Change, now_ms: i64) -> Publish {
    let created = now_ms.to_string();
    let headers = [
        (header::DEVICE_ID, change.name.1.as_bytes()),
        (header::ORIG_ADAPTER, adapter.as_bytes()),
        (header::QOS, b"1"),
        (header::CREATION_TIME, created.as_bytes()),
        (header::CONTENT_TYPE, EMPTY_NOTIFICATION),
        (header::TTD, if change.is_here { b"-1" } else { b"0" }),
    ];
    Publish {
        timestamp_ms: now_ms,
        key: Some(change.name.1.as_bytes().to_vec()),
        value: Some(Vec::new()),
        headers: headers.map(|(name, value): (&str, &[u8])| (name.into(), value.to_vec())).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_version_1_are_read_and_written_as_they_lie() {
        for (value, encoded) in [(Some(&[1_u8][..]), Encoded::Value), (None, Encoded::Tombstone)] {
            let change = PresenceView::decode(b"acme\0d:1", value).unwrap();
            assert_eq!((change.name.0.as_str(), &*change.name.1, change.is_here), ("acme", "d:1", value.is_some()));
            let (mut key, mut written) = (Vec::new(), Vec::new());
            assert_eq!(PresenceView::encode(&change, &mut key, &mut written), encoded);
            assert_eq!((key.as_slice(), written.as_slice()), (&b"acme\0d:1"[..], value.unwrap_or_default()));
        }
        for (key, value, told) in [
            (&b"acme\0d"[..], &[2][..], "version 2, known is 1"),
            (b"acme\0d", &[], "version 0"),
            (b"acme", &[1], "no device"),
            (b"a b\0d", &[1], "no device"),
        ] {
            let refusal = PresenceView::decode(key, Some(value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
