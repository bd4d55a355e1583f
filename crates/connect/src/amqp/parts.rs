//! The frames of a message over a link.

use millstream_amqp::{Performative, Transfer, write_frame};

use super::link::MessageRest;
use super::session::Session;
use super::stream_queue::Taken;

/// Writes the frames of messages over a link.
pub(super) struct Parts {
    pub(super) channel: u16,
    pub(super) handle: u32,
    pub(super) is_settled: bool,
    /// Bytes of a message in one frame.
    pub(super) part_bytes: usize,
}

impl Parts {
    /// Appends a delivery, in as many frames as its message needs. Returns the rest that the window has no room for.
    pub(super) fn begin(
        &mut self,
        session: &mut Session,
        taken: Taken,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<MessageRest> {
        let id = session.delivery_id();
        if !self.is_settled {
            session.keep_unsettled(id, self.handle, taken);
        }
        let sent = message.len().min(self.part_bytes);
        let tag = id.to_be_bytes();
        let first = Transfer {
            handle: self.handle,
            delivery_id: Some(id),
            delivery_tag: Some(&tag),
            message_format: Some(0),
            settled: Some(self.is_settled),
            more: sent < message.len(),
            ..Transfer::default()
        };
        write_frame(out, self.channel, &Performative::Transfer(first), &message[..sent]);
        session.transfer_one();
        if sent == message.len() {
            return None;
        }
        self.go_on(session, MessageRest { bytes: message.to_vec(), sent }, out)
    }

    /// Appends further frames of a message.
    pub(super) fn go_on(
        &mut self,
        session: &mut Session,
        mut rest: MessageRest,
        out: &mut Vec<u8>,
    ) -> Option<MessageRest> {
        while session.window() > 0 {
            let end = rest.bytes.len().min(rest.sent + self.part_bytes);
            let more = end < rest.bytes.len();
            let transfer =
                Transfer { handle: self.handle, settled: Some(self.is_settled), more, ..Transfer::default() };
            write_frame(out, self.channel, &Performative::Transfer(transfer), &rest.bytes[rest.sent..end]);
            session.transfer_one();
            if !more {
                return None;
            }
            rest.sent = end;
        }
        Some(rest)
    }
}
