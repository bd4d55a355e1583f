//! MQTT's packets as frames of a socket.

use std::time::Duration;

use millstream_mqtt::{Framed, frame};

use super::broker::message::Message;
use super::disconnect::DisconnectCause;
use crate::framed_io::{self, Framing, Measured};

/// The packets of MQTT.
pub(super) struct MqttFraming;

/// A client's socket with its read and write buffers.
pub(super) type FramedIo<S> = framed_io::FramedIo<S, MqttFraming>;

impl Framing for MqttFraming {
    type Fault = DisconnectCause;
    type Message = Message;

    fn payload(message: &Message) -> &[u8] {
        &message.payload
    }

    fn measure(bytes: &[u8], limit_bytes: usize) -> Result<Measured, DisconnectCause> {
        Ok(match frame(bytes, limit_bytes)? {
            Framed::Whole(_) => Measured::Whole,
            Framed::Partial { size } => Measured::Partial { size_bytes: size },
        })
    }

    fn no_memory(size_bytes: usize) -> DisconnectCause {
        DisconnectCause::NoMemory { size_bytes }
    }

    fn slow_reader(limit: Duration) -> DisconnectCause {
        DisconnectCause::SlowReader { limit }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_mqtt::Qos;
    use millstream_types::{MemoryBudget, TenantId};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_whole_packet_that_is_not_consumed_yet_is_held_and_not_awaited() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1_024);
        for (byte, is_whole) in [(0xC0, false), (0x00, true)] {
            far.write_all(&[byte]).await.unwrap();
            io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
            assert_eq!((io.has_held(), io.begun().is_none()), (is_whole, is_whole));
        }
    }

    #[tokio::test]
    async fn a_fragmented_packet_returns_its_memory_once_it_is_consumed() {
        let (near, mut far) = tokio::io::duplex(64);
        let budget = MemoryBudget::new("memory.budget_bytes", 1 << 20);
        let mut io = FramedIo::new(near, budget.clone(), 1_024);
        far.write_all(&[0xC0]).await.unwrap();
        io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
        assert!(budget.used_bytes() > 0);
        far.write_all(&[0x00]).await.unwrap();
        io.read(|bytes: &[u8], _: &mut Vec<u8>| Ok(bytes.len())).await.unwrap();
        assert_eq!((io.has_held(), budget.used_bytes()), (false, 0));
    }

    #[tokio::test]
    async fn room_for_the_beginning_of_a_packet_grows_to_no_more_than_the_packet() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1 << 20);
        // The head of a PUBLISH with 100 KiB behind it.
        let packet = [&[0x30, 0x80, 0xA0, 0x06, 0x00][..], &[0; 90 << 10]].concat();
        for part in packet.chunks(1_000) {
            far.write_all(part).await.unwrap();
            io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
        }
        assert_eq!(io.held().len(), packet.len());
        assert!(io.held().capacity() <= (100 << 10) + 4, "{}", io.held().capacity());
    }

    #[tokio::test]
    async fn a_large_payload_is_sent_behind_the_buffered_bytes_and_before_later_ones() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1_024);
        let message = Message {
            topic: "a".into(),
            payload: vec![b'x'; 10_000].into(),
            qos: Qos::AtMostOnce,
            properties: Box::default(),
            expires_ms: None,
            _room: None,
        };
        let sent = async {
            for (bytes, behind) in [(&b"head"[..], Some(Arc::new(message))), (b"later", None)] {
                (io.out, io.behind) = (bytes.to_vec(), behind);
                io.flush(Duration::from_secs(60)).await.unwrap();
                assert!(io.out.is_empty() && io.behind.is_none());
            }
            io.close().await;
        };
        let mut arrived = Vec::new();
        let (_, read) = tokio::join!(sent, far.read_to_end(&mut arrived));
        assert_eq!(read.unwrap(), 10_009);
        assert!(arrived == [b"head", &[b'x'; 10_000][..], b"later"].concat());
    }

    #[tokio::test]
    async fn what_one_tenant_announces_leaves_memory_for_the_packets_of_another() {
        const PACKET_BYTES: usize = 100 << 10;
        let budget = MemoryBudget::new("memory.budget_bytes", 10 * PACKET_BYTES as u64);
        // The head of a PUBLISH with 100 KiB behind it.
        let head = [0x30, 0x80, 0xA0, 0x06, 0x00];
        let announce = async |tenant: &str| {
            let (near, mut far) = tokio::io::duplex(64);
            let mut io = FramedIo::new(near, budget.clone(), 64);
            io.allow(&TenantId::new(tenant).unwrap(), 2 * PACKET_BYTES);
            far.write_all(&head).await.unwrap();
            let read = io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await;
            read.map(|_| io).ok()
        };
        let mut standing = Vec::new();
        for _ in 0..20 {
            standing.extend(announce("greedy").await);
        }
        assert_eq!(standing.len(), 4);
        for _ in 0..2 {
            standing.push(announce("other").await.unwrap());
        }
    }
}
