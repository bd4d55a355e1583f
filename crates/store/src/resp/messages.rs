//! Messages of channels on their way to subscribers.
//!
//! A message is encoded once and shared by all who listen; its bytes draw on the memory of their tenant until the last of them
//! has taken it. Each subscriber has a queue with the bounds of Redis's `client-output-buffer-limit pubsub`: a client
//! that does not keep up is closed, and so knows that it has missed messages.

use std::collections::VecDeque;

use bytes::Bytes;
use millstream_types::{Grant, MemoryBudget};

use crate::resp::closed::ClosedFor;
use crate::resp::codec::{ReplyWriter, RespVersion};

/// Most bytes of messages that may wait for a client.
pub(crate) const WAITING_MAX_BYTES: usize = 32 << 20;
/// Bytes that may wait for a client for [`SLOW_MAX_MS`] at most.
pub(crate) const SLOW_BYTES: usize = 8 << 20;
/// The time for which [`SLOW_BYTES`] may wait.
pub(crate) const SLOW_MAX_MS: i64 = 60_000;
/// Output that messages are gathered to; a longer one is sent without a copy.
const GATHERED_BYTES: usize = 64 << 10;
/// Memory of a part of a message beside its bytes: counts, the grant, what the allocator adds.
const PART_BYTES: usize = 128;
/// Most bytes of a bulk string beside its own, and of the head of an array.
const HEAD_BYTES: usize = 32;
/// Memory of a message's place in a queue, in which half of the places may be free.
const PLACE_BYTES: usize = 128;
/// A queue that has had more places gives their memory back once it is empty.
const KEPT_PLACES: usize = 64;

/// There is no memory for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// Bytes that give back their memory once nobody has them any more.
#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    _memory: Grant,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Encodes a part of a message, of at most `max_bytes`, which subscribers will share.
fn encode(
    max_bytes: usize,
    memory: &MemoryBudget,
    encode: impl FnOnce(&mut ReplyWriter<'_>),
) -> Result<Bytes, NoMemory> {
    let grant = memory.take((max_bytes + PART_BYTES) as u64).ok_or(NoMemory)?;
    let mut bytes = Vec::with_capacity(max_bytes);
    encode(&mut ReplyWriter::new(&mut bytes, RespVersion::V3));
    Ok(Bytes::from_owner(Counted { bytes, _memory: grant }))
}

/// The payload of a PUBLISH, which all of its messages share.
#[derive(Debug, Clone)]
pub(crate) struct Payload(Bytes);

impl Payload {
    pub(crate) fn new(payload: &[u8], memory: &MemoryBudget) -> Result<Self, NoMemory> {
        encode(payload.len() + HEAD_BYTES, memory, |out| out.bulk(payload)).map(Self)
    }
}

/// A message for those who listen to one channel or one pattern.
#[derive(Debug, Clone)]
pub(crate) struct ChannelMessage {
    /// As RESP3 has it; RESP2 differs in the first byte.
    head: Bytes,
    payload: Bytes,
}

impl ChannelMessage {
    /// A message of `words`, such as `message` and the channel, and the payload behind them.
    pub(crate) fn new(words: &[&[u8]], Payload(payload): &Payload, memory: &MemoryBudget) -> Result<Self, NoMemory> {
        let max_bytes = words.iter().map(|word| word.len() + HEAD_BYTES).sum::<usize>() + HEAD_BYTES;
        let head = encode(max_bytes, memory, |out| {
            out.push(words.len() + 1);
            words.iter().for_each(|word| out.bulk(word));
        })?;
        Ok(Self { head, payload: payload.clone() })
    }

    fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    fn write_head(&self, protocol: RespVersion, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.head);
        if protocol == RespVersion::V2 {
            out[start] = b'*';
        }
    }
}

/// The messages that wait for a client.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    messages: VecDeque<ChannelMessage>,
    bytes: usize,
    /// Memory of the places; the messages have their own.
    memory: Grant,
    /// When the client was first seen with more than [`SLOW_BYTES`].
    slow_since_ms: Option<i64>,
}

impl MessageQueue {
    pub(crate) fn new(memory: &MemoryBudget) -> Self {
        Self { messages: VecDeque::new(), bytes: 0, memory: memory.empty_grant(), slow_since_ms: None }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the memory of further places from `memory`. Messages from before are forgotten.
    pub(crate) fn draw_on(&mut self, memory: &MemoryBudget) {
        *self = Self::new(memory);
    }

    /// Adds a message, or says why the client must be closed.
    pub(crate) fn push(&mut self, message: &ChannelMessage) -> Result<(), ClosedFor> {
        let bytes = self.bytes + message.len() + PLACE_BYTES;
        if bytes > WAITING_MAX_BYTES {
            return Err(ClosedFor::UnreadMessages { bytes });
        }
        if !self.memory.grow(PLACE_BYTES as u64) {
            return Err(ClosedFor::NoMemory { bytes });
        }
        self.bytes = bytes;
        self.messages.push_back(message.clone());
        Ok(())
    }

    /// Moves messages to the end of `out` until that is long enough to be sent. A long payload is not copied: it is
    /// returned, and is to be sent behind `out`.
    pub(crate) fn take_some(&mut self, protocol: RespVersion, out: &mut Vec<u8>) -> Option<Bytes> {
        while out.len() < GATHERED_BYTES {
            let message = self.pop()?;
            message.write_head(protocol, out);
            if message.payload.len() >= GATHERED_BYTES {
                return Some(message.payload);
            }
            out.extend_from_slice(&message.payload);
        }
        None
    }

    /// Moves all messages to the end of `out`.
    pub(crate) fn take_all(&mut self, protocol: RespVersion, out: &mut Vec<u8>) {
        while let Some(message) = self.pop() {
            message.write_head(protocol, out);
            out.extend_from_slice(&message.payload);
        }
    }

    fn pop(&mut self) -> Option<ChannelMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len() + PLACE_BYTES;
        self.memory.shrink(PLACE_BYTES as u64);
        if self.bytes <= SLOW_BYTES {
            self.slow_since_ms = None;
        }
        if self.messages.is_empty() && self.messages.capacity() > KEPT_PLACES {
            self.messages = VecDeque::new();
        }
        Some(message)
    }

    /// Forgets all messages.
    pub(crate) fn clear(&mut self) {
        self.messages = VecDeque::new();
        self.bytes = 0;
        self.slow_since_ms = None;
        self.memory.shrink(u64::MAX);
    }

    /// The bytes that wait, if they have been too many for too long. It is asked once a second.
    pub(crate) fn too_slow(&mut self, now_ms: i64) -> Option<usize> {
        let is_slow = self.bytes > SLOW_BYTES && now_ms - *self.slow_since_ms.get_or_insert(now_ms) >= SLOW_MAX_MS;
        is_slow.then_some(self.bytes)
    }
}
