//! Presence of devices that listen for commands on a connection. Applications get events without data: `ttd` -1 when
//! the connection opens, 0 when it ends.
//!
//! The view of the state topic `_presence` stores a listening device in one append with its event and removes it in one
//! append with the event of its end. A device that a start finds stored has lost its connection with the last process,
//! so the start sends the missing event once.
//!
//! | key | value |
//! | --- | --- |
//! | tenant, 0, device | version byte |

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millstream_types::{PartitionId, StateTopic, TenantId, TopicName, TopicPartition, header};
use millstream_view::{
    Answer, DecodeError, Draft, Encoded, Failure, InState, Publish, View, ViewRuntime, Views, ViewsConfig,
};
use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;

use crate::Error;
use crate::content_type::EMPTY_NOTIFICATION;
use crate::stream::Stream;
use crate::streams::Streams;

/// Version of the value format; later versions are refused.
const VERSION: u8 = StateTopic::Presence.version();
/// End events that the start sends in one step.
const ENDS_AT_ONCE: usize = 1_000;

/// A device of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DeviceName {
    tenant: TenantId,
    device: Arc<str>,
}

/// The devices that listen for commands.
pub(crate) struct Presence {
    views: Arc<Views<PresenceView>>,
    streams: Arc<Streams>,
    /// The adapter of their connections.
    adapter: &'static str,
    here: Mutex<Here>,
}

#[derive(Default)]
struct Here {
    /// Number of listening connections of each device.
    counts: HashMap<DeviceName, usize>,
    /// Answers that are still open. An owner skips a change once its answer is dropped.
    open: VecDeque<Answer<PresenceView>>,
}

/// A listening device; dropping this ends its presence.
pub(crate) struct Present {
    presence: Arc<Presence>,
    name: DeviceName,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.presence.leave(&self.name);
    }
}

impl Presence {
    /// Opens the view and sends the end events that the last process did not send. Blocks.
    pub(crate) fn open(
        ground: &ViewRuntime,
        config: &ViewsConfig,
        streams: &Arc<Streams>,
        adapter: &'static str,
    ) -> Result<Arc<Self>, Error> {
        let view = PresenceView { adapter };
        let views =
            Views::open(view, &TopicName::internal(StateTopic::Presence), config, ground).map_err(Error::Presence)?;
        let presence = Self { views, streams: streams.clone(), adapter, here: Mutex::default() };
        for number in 0..config.partitions {
            let partition = PartitionId(number);
            let left: Vec<DeviceName> = presence.views.snapshot(partition).state.iter().cloned().collect();
            for some in left.chunks(ENDS_AT_ONCE) {
                presence.make_up(partition, some).map_err(Error::Presence)?;
            }
        }
        Ok(Arc::new(presence))
    }

    fn make_up(&self, partition: PartitionId, left: &[DeviceName]) -> Result<(), millstream_view::Error> {
        let answers: Vec<_> =
            left.iter().map(|name| self.views.submit(partition, self.change(name, false))).collect::<Result<_, _>>()?;
        answers
            .into_iter()
            .try_for_each(|answer| answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)))
    }

    /// Records that `device` listens. It can already receive commands.
    pub(crate) fn enter(self: &Arc<Self>, tenant: &TenantId, device: &str) -> Present {
        let name = DeviceName { tenant: tenant.clone(), device: Arc::from(device) };
        let mut here = self.here.lock();
        let count = here.counts.entry(name.clone()).or_default();
        *count += 1;
        // This lock orders the commands to the owners.
        if *count == 1 {
            self.tell(&mut here, &name, true);
        }
        drop(here);
        Present { presence: Arc::clone(self), name }
    }

    fn leave(&self, name: &DeviceName) {
        let mut here = self.here.lock();
        let Some(count) = here.counts.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            here.counts.remove(name);
            self.tell(&mut here, name, false);
        }
    }

    fn tell(&self, here: &mut Here, name: &DeviceName, is_here: bool) {
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
            Err(error) => tracing::warn!(%error, adapter = self.adapter, device = %name.device, is_here, "{LOST}"),
        }
    }

    fn change(&self, name: &DeviceName, is_here: bool) -> Told {
        let streams = self.streams.known(&name.tenant);
        let tell = streams.map(|streams| streams.partition(Stream::Event, &name.device).id().clone());
        Told { change: PresenceChange { name: name.clone(), is_here }, tell }
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    /// Stops taking commands, answers the taken ones and writes the checkpoint.
    pub(crate) fn stop(&self) {
        self.views.stop();
    }
}

struct PresenceView {
    adapter: &'static str,
}

/// A device starts or stops to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PresenceChange {
    name: DeviceName,
    is_here: bool,
}

/// A change and the event stream that reports it; `None` if the tenant was deleted.
struct Told {
    change: PresenceChange,
    tell: Option<TopicPartition>,
}

impl View for PresenceView {
    type State = imbl::HashSet<DeviceName>;
    type Storage = InState;
    type Change = PresenceChange;
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
        told.change.name.tenant.as_str().len() + told.change.name.device.len()
    }

    fn apply(state: &mut Self::State, change: &PresenceChange) {
        if change.is_here {
            state.insert(change.name.clone());
        } else {
            state.remove(&change.name);
        }
    }

    fn encode(change: &PresenceChange, into: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        into.extend_from_slice(&key(&change.name));
        if !change.is_here {
            return Encoded::Tombstone;
        }
        value.push(VERSION);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<PresenceChange, DecodeError> {
        let names = std::str::from_utf8(key).ok().and_then(|names| names.split_once('\0'));
        let name = names.and_then(|(tenant, device)| {
            Some(DeviceName { tenant: TenantId::new(tenant).ok()?, device: Arc::from(device) })
        });
        let name = name.ok_or_else(|| DecodeError::new("a key that names no device of a tenant"))?;
        match value {
            None => Ok(PresenceChange { name, is_here: false }),
            Some([VERSION]) => Ok(PresenceChange { name, is_here: true }),
            Some(other) => {
                let version = other.first().copied().unwrap_or_default();
                Err(DecodeError::new(format!("a listening device, version {version}, known is {VERSION}")))
            }
        }
    }
}

fn key(name: &DeviceName) -> Vec<u8> {
    [name.tenant.as_str().as_bytes(), b"\0", name.device.as_bytes()].concat()
}

/// The event has no payload, so it does not count as volume.
fn event(adapter: &str, change: &PresenceChange, now_ms: i64) -> Publish {
    let created = now_ms.to_string();
    let headers = [
        (header::DEVICE_ID, change.name.device.as_bytes()),
        (header::ORIG_ADAPTER, adapter.as_bytes()),
        (header::QOS, b"1"),
        (header::CREATION_TIME, created.as_bytes()),
        (header::CONTENT_TYPE, EMPTY_NOTIFICATION),
        (header::TTD, if change.is_here { b"-1" } else { b"0" }),
    ];
    Publish {
        timestamp_ms: now_ms,
        key: Some(change.name.device.as_bytes().to_vec()),
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
            assert_eq!(
                (change.name.tenant.as_str(), &*change.name.device, change.is_here),
                ("acme", "d:1", value.is_some())
            );
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
