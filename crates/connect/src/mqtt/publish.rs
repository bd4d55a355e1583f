//! The context that the messages of a run share: telemetry, events or answers to commands.

use bytes::Bytes;
use millstream_http::Problem;
use millstream_log::AckLevel;
use millstream_types::Principal;

use super::incoming::IncomingPublish;
use super::topic::{OnError, PropertyBag};
use crate::commands::{RequestId, Response};
use crate::content_type::check_type;
use crate::ingest::{Envelope, Message as _, level_of};
use crate::sender::DeviceAddress;
use crate::stream::Delivery;

/// The sender, target and delivery that the messages of a run share.
pub(super) struct PublishContext<'a> {
    who: &'a Principal,
    pub(super) delivery: Delivery,
    /// The level that the log reaches before they are acknowledged: memory for those that nobody waits for.
    pub(super) level: AckLevel,
    pub(super) target: DeviceAddress<'a>,
    address: &'a str,
    pub(super) bag: &'a PropertyBag<'a>,
    /// Request id and status of answers to a command, the status as it was sent and as a number.
    pub(super) reply: Option<(RequestId, &'a str, u16)>,
}

/// A message that waits for its acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    /// The packet id; 0 at QoS 0.
    pub(super) id: u16,
    pub(super) delivery: Delivery,
    pub(super) payload_bytes: usize,
    pub(super) on_error: OnError,
    pub(super) correlation_id: Option<Box<str>>,
    /// The device that it was sent for, if not for the one that has logged in.
    pub(super) device: Option<Box<str>>,
    /// The correlation id and the response, if the message answers a command.
    pub(super) reply: Option<Box<(String, Response)>>,
}

impl<'a> PublishContext<'a> {
    pub(super) fn new(
        who: &'a Principal,
        delivery: Delivery,
        target: DeviceAddress<'a>,
        address: &'a str,
        bag: &'a PropertyBag<'a>,
    ) -> Self {
        let level = level_of(delivery);
        Self { who, delivery, level, target, address, bag, reply: None }
    }

    /// The envelope of the messages.
    pub(super) fn envelope(&self) -> Envelope<'_> {
        Envelope {
            caller: self.who,
            target: self.target,
            delivery: self.delivery,
            address: self.address,
            content_type: self.bag.content_type.as_deref().map(str::as_bytes),
            ttd_s: None,
            ttl_s: self.bag.ttl_s,
            trace: None,
            reply: self.reply.as_ref().map(|(request_id, status, _)| (request_id, *status)),
            is_will: false,
        }
    }

    /// The device that they are sent for, if not for the one that has logged in.
    pub(super) fn device(&self) -> Option<&'a str> {
        match self.target {
            DeviceAddress::Caller => None,
            DeviceAddress::Named { device, .. } => Some(device),
        }
    }

    pub(super) fn sent(&self, item: &IncomingPublish<'_>) -> Sent {
        let device = self.device();
        let reply = self.reply.as_ref().map(|(request_id, _, status)| {
            let content_type = item.stated_content_type().or(self.bag.content_type.as_deref()).map(Into::into);
            let payload = Bytes::copy_from_slice(item.publish.payload);
            let device = device.unwrap_or(&self.who.name).into();
            Box::new((request_id.correlation_id.clone(), Response { device, status: *status, content_type, payload }))
        });
        Sent {
            id: item.publish.id,
            delivery: self.delivery,
            payload_bytes: item.publish.payload.len(),
            on_error: self.bag.on_error,
            correlation_id: self.bag.correlation_id.as_deref().map(Into::into),
            device: device.map(Into::into),
            reply,
        }
    }
}

/// The first message whose type and payload do not fit, and why.
pub(super) fn split<'a>(run: &[IncomingPublish<'a>], context: &PublishContext<'a>) -> Option<(usize, Problem)> {
    let rule = "an empty payload needs a content type";
    let envelope = context.envelope();
    run.iter().enumerate().find_map(|(at, item)| {
        let content_type = envelope.content_type_of(item);
        check_type(content_type, item.payload(), rule).err().map(|problem| (at, problem))
    })
}
