//! Makes the records of a run. Messages with the same headers share them.

use millstream_types::Record;
use smallvec::SmallVec;

use super::message::{Envelope, Message};
use crate::outgoing::{AdapterMessage, DeviceReply, Headers, Numbers};
use crate::sender::Sender;

/// The parts that all records of a run are made from.
pub(super) struct RecordDraft<'a> {
    pub(super) adapter: &'static str,
    pub(super) envelope: &'a Envelope<'a>,
    pub(super) sender: &'a Sender<'a>,
    pub(super) numbers: &'a Numbers,
    pub(super) traceparent: Option<&'a [u8]>,
}

/// Makes the records of `run`, in order, and hands them to `take`.
pub(super) fn write<M: Message, R>(draft: &RecordDraft<'_>, run: &[M], take: impl FnOnce(&[Record<'_>]) -> R) -> R {
    let alike = || run.chunk_by(|a, b| draft.envelope.are_alike(a, b));
    let headers: SmallVec<[Headers<'_>; 1]> = alike().map(|messages| draft.headers(&messages[0])).collect();
    let mut records: SmallVec<[Record<'_>; 1]> = SmallVec::with_capacity(run.len());
    for (messages, headers) in alike().zip(&headers) {
        let record = |message| draft.outgoing(message).record(draft.sender, draft.numbers, headers);
        records.extend(messages.iter().map(record));
    }
    take(&records)
}

impl<'a> RecordDraft<'a> {
    fn headers<M: Message>(&self, message: &'a M) -> Headers<'a> {
        let mut headers = self.outgoing(message).headers(self.sender, self.numbers);
        let properties = message.user_properties();
        if properties.clone().next().is_some() {
            AdapterMessage::add_user_properties(&mut headers, properties);
        }
        headers
    }

    fn outgoing<M: Message>(&self, message: &'a M) -> AdapterMessage<'a> {
        let Envelope { caller, delivery, address, reply, .. } = *self.envelope;
        AdapterMessage {
            adapter: self.adapter,
            delivery,
            address,
            content_type: self.envelope.content_type_of(message),
            content_encoding: message.content_encoding(),
            traceparent: self.traceparent,
            is_retained: message.is_retained(),
            payload: message.payload(),
            reply: reply.map(|(request_id, status)| DeviceReply {
                tenant: caller.tenant.as_str(),
                correlation_id: &request_id.correlation_id,
                status,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_types::{AccessScope, Principal, Role, Roles, TenantId};
    use proptest::prelude::*;

    use super::*;
    use crate::registry::{Device, Stored, Tenant};
    use crate::sender::DeviceAddress;
    use crate::stream::Delivery;

    #[derive(Debug, Clone)]
    struct TestMessage {
        payload: Vec<u8>,
        content_type: Option<&'static str>,
        is_retained: bool,
        properties: Vec<(&'static str, &'static str)>,
    }

    impl Message for TestMessage {
        fn payload(&self) -> &[u8] {
            &self.payload
        }

        fn content_type(&self) -> Option<&[u8]> {
            self.content_type.map(str::as_bytes)
        }

        fn is_retained(&self) -> bool {
            self.is_retained
        }

        fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
            self.properties.iter().copied()
        }
    }

    fn item() -> impl Strategy<Value = TestMessage> {
        let payload = prop::collection::vec(any::<u8>(), 0..3);
        let content_type = prop::sample::select(vec![None, Some("text/plain")]);
        let property = prop::sample::select(vec![("site", "north"), ("site", "south"), ("device_id", "other")]);
        let properties = prop::collection::vec(property, 0..3);
        (payload, content_type, any::<bool>(), properties).prop_map(
            |(payload, content_type, is_retained, properties)| TestMessage {
                payload,
                content_type,
                is_retained,
                properties,
            },
        )
    }

    /// The records of `runs` as text, in order.
    fn records<'a>(runs: impl Iterator<Item = &'a [TestMessage]>) -> Vec<String> {
        let (device, tenant) = (Device::default(), Stored::new(Arc::new(Tenant::default()), 0));
        let roles = Roles::NONE.with(Role::Device);
        let caller =
            Principal { tenant: TenantId::default(), name: "d".to_owned(), roles, scope: AccessScope::default() };
        let envelope = Envelope {
            caller: &caller,
            target: DeviceAddress::Caller,
            delivery: Delivery::Event,
            address: "e",
            content_type: Some(b"text/csv"),
            ttd_s: None,
            ttl_s: None,
            trace: None,
            reply: None,
            is_will: false,
        };
        let (sender, numbers) = (Sender::of("d", &device, &tenant), Numbers::at(7).with_times(None, Some(9)));
        let draft = RecordDraft {
            adapter: "hono-mqtt",
            envelope: &envelope,
            sender: &sender,
            numbers: &numbers,
            traceparent: None,
        };
        let text = |records: &[Record<'_>]| records.iter().map(|record| format!("{record:?}")).collect::<Vec<_>>();
        runs.flat_map(|run| write(&draft, run, text)).collect()
    }

    proptest! {
        #[test]
        fn splitting_messages_into_runs_changes_no_record(
            items in prop::collection::vec(item(), 0..12),
            length in 1..5_usize,
        ) {
            let alone = records(items.chunks(1));
            prop_assert_eq!(alone.len(), items.len());
            prop_assert_eq!(&records(items.chunks(length)), &alone);
            prop_assert_eq!(records(std::iter::once(&items[..])), alone);
        }
    }
}
