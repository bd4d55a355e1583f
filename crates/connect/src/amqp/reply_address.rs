//! The address to which the response of a command goes, kept in the command's correlation id.
//!
//! Devices know a command by its correlation id, and their responses carry it. One that was sent over AMQP has a correlation id
//! that names the receiver of the response and the id that its sender has given it, which may be a number, a UUID or bytes:
//!
//! ```text
//!   amqp1-BASE64URL( length of the reply id (1), reply id, kind of the id (1), id )
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use millstream_amqp::Value;

use crate::commands::CORRELATION_ID_MAX_BYTES;

const PREFIX: &str = "amqp1-";
/// Bytes that reply id and correlation id may have together.
pub(super) const REPLY_MAX_BYTES: usize = (CORRELATION_ID_MAX_BYTES - PREFIX.len()) / 4 * 3 - 2;
const TEXT: u8 = 0;
const NUMBER: u8 = 1;
const UUID: u8 = 2;
const BYTES: u8 = 3;

/// The correlation id of a command whose response goes to `command_response/TENANT/REPLY` with this id; `None` if both are too long
/// or `id` is none of an AMQP message.
pub(super) fn correlation_id(reply: &str, id: Value<'_>) -> Option<String> {
    let mut bytes = vec![u8::try_from(reply.len()).ok()?];
    bytes.extend_from_slice(reply.as_bytes());
    let number;
    let (kind, id): (u8, &[u8]) = match &id {
        Value::String(text) => (TEXT, text.as_bytes()),
        Value::Ulong(value) => {
            number = value.to_be_bytes();
            (NUMBER, &number)
        }
        Value::Uuid(uuid) => (UUID, uuid),
        Value::Binary(bytes) => (BYTES, bytes),
        _ => return None,
    };
    bytes.push(kind);
    bytes.extend_from_slice(id);
    (bytes.len() <= REPLY_MAX_BYTES + 2).then(|| format!("{PREFIX}{}", BASE64.encode(bytes)))
}

/// The parts of such a correlation id.
pub(super) struct Reply {
    bytes: Vec<u8>,
    reply_end: usize,
}

impl Reply {
    /// Reads the correlation id of a response; `None` if the command was not sent so.
    pub(super) fn parse(correlation_id: &str) -> Option<Self> {
        let bytes = BASE64.decode(correlation_id.strip_prefix(PREFIX)?).ok()?;
        let reply_end = 1 + usize::from(*bytes.first()?);
        let reply = Self { bytes, reply_end };
        std::str::from_utf8(reply.bytes.get(1..reply_end)?).ok()?;
        reply.id().is_some().then_some(reply)
    }

    /// The end of the address of the response's receiver.
    pub(super) fn reply(&self) -> &str {
        self.bytes.get(1..self.reply_end).and_then(|reply| std::str::from_utf8(reply).ok()).unwrap_or_default()
    }

    /// The id that the sender has given its command.
    pub(super) fn id(&self) -> Option<Value<'_>> {
        let (kind, id) = self.bytes.get(self.reply_end..)?.split_first()?;
        Some(match *kind {
            TEXT => Value::String(std::str::from_utf8(id).ok()?),
            NUMBER => Value::Ulong(u64::from_be_bytes(id.try_into().ok()?)),
            UUID => Value::Uuid(id.try_into().ok()?),
            BYTES => Value::Binary(id),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_id_gives_back_what_it_was_made_of() {
        for id in
            [Value::String("a-1"), Value::String(""), Value::Ulong(7), Value::Uuid([9; 16]), Value::Binary(b"\0x")]
        {
            for reply in ["", "r", "a/b-ä"] {
                let text = correlation_id(reply, id).unwrap();
                assert!(crate::commands::is_correlation_id(&text), "{text}");
                let parsed = Reply::parse(&text).unwrap();
                assert_eq!((parsed.reply(), parsed.id()), (reply, Some(id)));
            }
        }
        let longest = "x".repeat(REPLY_MAX_BYTES - 1);
        assert!(correlation_id("r", Value::String(&longest)).is_some_and(|id| id.len() <= CORRELATION_ID_MAX_BYTES));
        assert_eq!(correlation_id("rr", Value::String(&longest)), None);
        assert_eq!(correlation_id("r", Value::Bool(true)), None);
    }

    #[test]
    fn what_others_have_made_is_no_reply() {
        for other in ["", "amqp1-", "amqp1-!", "x-AQ", "amqp1-AQ", "amqp1-_w", "amqp1-AAE", "amqp1-AAk"] {
            assert!(Reply::parse(other).is_none(), "{other}");
        }
    }
}
