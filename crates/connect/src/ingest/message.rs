//! A message as a protocol adapter has decoded it, and what the messages of a run share.

use millstream_http::TraceContext;
use millstream_types::Principal;

use crate::commands::RequestId;
use crate::sender::DeviceAddress;
use crate::stream::Delivery;

/// One decoded message. Everything is borrowed from the packet or request.
pub(crate) trait Message {
    fn payload(&self) -> &[u8];

    /// The content type that the message states.
    fn content_type(&self) -> Option<&[u8]>;

    /// The content encoding that the message states; the payload is passed on unchanged.
    fn content_encoding(&self) -> Option<&[u8]> {
        None
    }

    /// True if the sender asks for the message to be retained.
    fn is_retained(&self) -> bool {
        false
    }

    /// Name and value of each user property.
    fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        std::iter::empty()
    }
}

/// The properties that the messages of a run share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'a> {
    /// The device or gateway that sends.
    pub(crate) caller: &'a Principal,
    pub(crate) target: DeviceAddress<'a>,
    pub(crate) delivery: Delivery,
    /// The path or topic that the messages were sent to.
    pub(crate) address: &'a str,
    /// The content type of messages that state none.
    pub(crate) content_type: Option<&'a [u8]>,
    /// Time that the device waits for a command, seconds.
    pub(crate) ttd_s: Option<u32>,
    /// Time to live of events, seconds.
    pub(crate) ttl_s: Option<u64>,
    /// The trace of the request; `None` for protocols without one.
    pub(crate) trace: Option<TraceContext>,
    /// Request id and status of an answer to a command, the status as it was sent.
    pub(crate) reply: Option<(&'a RequestId, &'a str)>,
    /// True for a will: its device has gone, so sending it is no sign of life.
    pub(crate) is_will: bool,
}

impl<'a> Envelope<'a> {
    /// The content type of `message`: its own, else that of the run.
    pub(crate) fn content_type_of<'b>(&self, message: &'b impl Message) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        message.content_type().or(self.content_type)
    }

    /// True if the records of two messages have the same headers.
    pub(super) fn are_alike<M: Message>(&self, a: &M, b: &M) -> bool {
        a.is_retained() == b.is_retained()
            && self.content_type_of(a) == self.content_type_of(b)
            && a.content_encoding() == b.content_encoding()
            && a.user_properties().eq(b.user_properties())
    }
}
